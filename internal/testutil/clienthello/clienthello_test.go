package clienthello

import (
	"bytes"
	"testing"
)

func TestNamedIsOneRecord(t *testing.T) {
	hello := Named(t, "a.test", "h2")
	const handshake, header = 22, 5
	if hello[0] != handshake || int(hello[3])<<8|int(hello[4]) != len(hello)-header {
		t.Errorf("a record that begins with %x, and has %d bytes", hello[:header], len(hello))
	}
	if !bytes.Contains(hello, []byte("a.test")) || !bytes.Contains(hello, []byte("h2")) {
		t.Error("it does not say what the client wants")
	}
}
