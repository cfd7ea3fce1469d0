package clienthello_test

import (
	"fmt"

	"github.com/penstock/penstock/proxy/clienthello"
)

func ExampleLength() {
	// The record's and the message's header contain the length.
	fmt.Println(clienthello.Length([]byte{22}))
	fmt.Println(clienthello.Length([]byte{22, 3, 1, 2, 0, 1, 0, 1, 252}))
	fmt.Println(clienthello.Length([]byte("GET / HTTP/1.1")))
	// Output:
	// 9 <nil>
	// 517 <nil>
	// 0 this is not TLS
}
