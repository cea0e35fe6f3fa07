// The floor in Go: an ext_proc server on grpc-go that answers at once and decides nothing.
package main

import (
	"errors"
	"io"
	"log"
	"net"
	"os"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
)

type noop struct {
	pb.UnimplementedExternalProcessorServer
	destination string
}

func (n noop) Process(stream pb.ExternalProcessor_ProcessServer) error {
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(n.reply(request)); err != nil {
			return err
		}
	}
}

func (n noop) reply(request *pb.ProcessingRequest) *pb.ProcessingResponse {
	if request.GetResponseHeaders() != nil {
		return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_ResponseHeaders{
			ResponseHeaders: &pb.HeadersResponse{}}}
	}
	header := &corev3.HeaderValueOption{Header: &corev3.HeaderValue{
		Key: "x-gateway-destination-endpoint", RawValue: []byte(n.destination)}}
	return &pb.ProcessingResponse{Response: &pb.ProcessingResponse_RequestHeaders{
		RequestHeaders: &pb.HeadersResponse{Response: &pb.CommonResponse{
			HeaderMutation: &pb.HeaderMutation{
				SetHeaders: []*corev3.HeaderValueOption{header}}}}}}
}

// Usage: go-noop ADDRESS DESTINATION
func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterExternalProcessorServer(server, noop{destination: os.Args[2]})
	log.Fatal(server.Serve(listener))
}
