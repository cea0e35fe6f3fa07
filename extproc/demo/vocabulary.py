"""What the demo's models speak: rowing words, and their chat template."""

_SPOKEN = (
    "row pull catch drive finish recover stroke steady easy hold ready all bow stern port "
    "starboard oar blade hull wake river current bend bridge lane buoy start sprint rate length "
    "lead level crew seat steer call count swing run clear"
)

WORDS = tuple(_SPOKEN.split())
CHAT_TEMPLATE = "{% for m in messages %}{{m.role}}: {{m.content}}\n{% endfor %}assistant:"
