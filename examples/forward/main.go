// Command forward is the library in fifteen lines: it accepts connections and
// joins each to a target.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/penstock/penstock/relay"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: forward LISTEN-ADDRESS TARGET-ADDRESS")
	}
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", l.Addr())
	log.Fatal(forward(context.Background(), l, os.Args[2]))
}

func forward(ctx context.Context, l net.Listener, target string) error {
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer client.Close()
			if endpoint, err := net.Dial("tcp", target); err == nil {
				result, err := relay.Join(ctx, client, endpoint) // closes both
				log.Println(result.AToB.Spliced, result.BToA.Spliced, result.Reason, err)
			}
		}()
	}
}
