package vecio_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"strconv"

	"github.com/penstock/penstock/pool"
	"github.com/penstock/penstock/vecio"
)

// A response of header, payload and trailer goes with one system call, and the payload
// goes back to its pool.
func ExampleNew() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	payloads, err := pool.New(pool.Config[[]byte]{
		New: func(context.Context) ([]byte, error) { return make([]byte, 16<<10), nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer payloads.Close()
	putBack := vecio.ReleaseFunc(payloads.Put) // made once, and not for each piece
	w, err := vecio.New(conn, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()

	payload, err := payloads.Get(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	err = errors.Join(
		w.AppendString("HTTP/1.1 200 OK\r\nContent-Length: 16384\r\n\r\n"),
		w.Own(payload, putBack),
		w.Flush(),
	)
	fmt.Println(err, w.Stats().Calls, "call,", payloads.Stats().Live, "payloads out")
	// Output: <nil> 1 call, 0 payloads out
}

// The middle of a RESP server (the protocol of Redis): the replies to all requests that have come are
// gathered. Headers are composed in one buffer again and again, so they are copied; values are long and do
// not change, so they are borrowed. One system call sends it all.
func ExampleWriter_AppendCopy() {
	values := map[string][]byte{"page": bytes.Repeat([]byte("p"), 8<<10), "name": []byte("penstock")}
	var out bytes.Buffer // a connection
	w, err := vecio.New(&out, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()

	var header []byte
	for _, key := range []string{"name", "missing", "page", "name"} { // requests that came together
		value, ok := values[key]
		if !ok {
			err = errors.Join(err, w.AppendString("$-1\r\n"))
			continue
		}
		header = append(strconv.AppendInt(append(header[:0], '$'), int64(len(value)), 10), "\r\n"...)
		err = errors.Join(err, w.AppendCopy(header), w.Append(value), w.AppendString("\r\n"))
	}
	err = errors.Join(err, w.Flush())
	fmt.Printf("%v, %d call, %q\n", err, w.Stats().Calls, out.Bytes()[:32])
	// Output: <nil>, 1 call, "$8\r\npenstock\r\n$-1\r\n$8192\r\npppppp"
}
