// Command forward accepts connections and joins each to a target: the library
// in one function.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"time"

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
	for {
		client, err := l.Accept()
		if err != nil { // for example no free descriptor (EMFILE), which passes
			log.Println(err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go func() {
			if err := forward(context.Background(), client, os.Args[2]); err != nil {
				log.Println(err)
			}
		}()
	}
}

func forward(ctx context.Context, client net.Conn, target string) error {
	endpoint, err := net.Dial("tcp", target)
	if err != nil {
		client.Close()
		return fmt.Errorf("connect %s: %w", target, err)
	}
	result, err := relay.Join(ctx, client, endpoint) // closes both; the end of ctx resets them
	log.Println(result.AToB.Bytes(), result.BToA.Bytes(), result.Reason)
	return err
}
