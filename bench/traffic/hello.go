package traffic

import (
	"bytes"
	"errors"
)

// HelloRequest is a request of HTTP/1.1, of the size that a small program's has.
var HelloRequest = []byte("GET /hello HTTP/1.1\r\nHost: localhost\r\nUser-Agent: penstock-bench\r\nAccept: */*\r\n\r\n")

var (
	helloBegins = []byte("HTTP/1.1 200 OK\r\n")
	helloEnds   = []byte("\r\n\r\nHello, World!")
	errHello    = errors.New("the answer is not Hello, World! by HTTP/1.1")
)

// maxHello is more than the answer of any server takes, in bytes.
const maxHello = 1 << 10

// HelloResponse reports whether b is a whole answer to HelloRequest: status 200, any fields, and Hello, World!
// The error is that of bytes which are not the beginning of one.
func HelloResponse(b []byte) (complete bool, err error) {
	n := min(len(b), len(helloBegins))
	if !bytes.Equal(b[:n], helloBegins[:n]) || len(b) > maxHello {
		return false, errHello
	}
	return bytes.HasSuffix(b, helloEnds), nil
}
