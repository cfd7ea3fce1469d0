package origin

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/penstock/penstock/bench/traffic"
)

const page = `Hello from the origin behind Penstock.
  /10M    ten million bytes; any number with K, M or G
Anything that is not HTTP comes back as it is: try nc.
`

// serveHTTP answers one request, of which head has been read already, and
// leaves closing the connection to the caller.
func serveHTTP(c io.ReadWriter, head []byte) {
	req, err := http.ReadRequest(bufio.NewReader(io.MultiReader(bytes.NewReader(head), c)))
	if err != nil {
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
		return
	}
	length, body := int64(len(page)), io.Reader(strings.NewReader(page))
	status := "200 OK"
	if path := strings.TrimPrefix(req.URL.Path, "/"); path != "" {
		n, err := parseSize(path)
		if err != nil {
			status = "404 Not Found"
		} else {
			length, body = n, io.LimitReader(content{traffic.NewStream(0)}, n)
		}
	}
	_, _ = fmt.Fprintf(c, "HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", status, length)
	if req.Method == http.MethodGet {
		_, _ = io.CopyBuffer(struct{ io.Writer }{c}, body, make([]byte, traffic.MaxChunk))
	}
}

// content reads a stream of content.
type content struct{ stream *traffic.Stream }

// Read fills b and never ends.
func (c content) Read(b []byte) (int, error) { return copy(b, c.stream.Next(len(b))), nil }

// parseSize reads a number of bytes with an optional decimal unit: 500, 64K,
// 10M, 2G.
func parseSize(s string) (int64, error) {
	unit := int64(1)
	if i := strings.IndexByte("KMG", s[len(s)-1]); i >= 0 {
		unit = [...]int64{1e3, 1e6, 1e9}[i]
		s = s[:len(s)-1]
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, err
	}
	if n < 0 || n > math.MaxInt64/unit {
		return 0, strconv.ErrRange
	}
	return n * unit, nil
}
