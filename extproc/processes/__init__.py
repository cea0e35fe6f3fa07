"""The processes of `fronts`: a supervisor, a core and its spare, and fronts."""
