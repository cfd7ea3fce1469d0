package hello_test

import (
	"fmt"

	"github.com/penstock/penstock/proxy/hello"
)

func ExampleLength() {
	// The record's header, and the message's, tell how long it is.
	fmt.Println(hello.Length([]byte{22}))
	fmt.Println(hello.Length([]byte{22, 3, 1, 2, 0, 1, 0, 1, 252}))
	fmt.Println(hello.Length([]byte("GET / HTTP/1.1")))
	// Output:
	// 9 <nil>
	// 517 <nil>
	// 0 this is not TLS
}
