// Command coroutine answers each line with the line in upper case, over TLS, by a coroutine for each connection
// on one event loop for each CPU. The handler is written as for package net, and waits where it reads:
// crypto/tls and bufio take the connection as it is. While a coroutine waits, its loop serves others without
// switching threads, so a request takes fewer switches than with a goroutine of package net (go test -bench .
// ./examples/coroutine).
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"log"
	"net"
	"os"

	"github.com/penstock/penstock/loop"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: coroutine LISTEN-ADDRESS CERTIFICATE KEY")
	}
	pair, err := tls.LoadX509KeyPair(os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	log.Fatal(loop.Serve(l, func(c *loop.Conn) error { return answer(c, config) }))
}

// answer serves one connection, of a loop or of package net.
func answer(c net.Conn, config *tls.Config) error {
	secure := tls.Server(c, config)
	lines := bufio.NewScanner(secure)
	for lines.Scan() {
		if _, err := secure.Write(append(bytes.ToUpper(lines.Bytes()), '\n')); err != nil {
			return err
		}
	}
	return lines.Err()
}
