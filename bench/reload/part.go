package reload

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
)

// The names of the parts that a measurement runs by starting its own program again.
const (
	PartEndpoints = "reload-endpoints"
	PartClients   = "reload-clients"
)

// IsPart reports whether RunPart runs the part with this name.
func IsPart(part string) bool { return part == PartEndpoints || part == PartClients }

// RunPart runs a part until ctx is done or in ends.
func RunPart(ctx context.Context, part string, in io.Reader, out io.Writer) error {
	switch part {
	case PartEndpoints:
		return serveEndpoints(ctx, in, out)
	case PartClients:
		return runClients(ctx, in, out)
	}
	return fmt.Errorf("reload: no part %q", part)
}

// The letters with which endpoints greet.
const letters = "ab"

// listening is the line that PartEndpoints prints: the ports, one for each letter.
type listening struct {
	Ports []int `json:"ports"`
}

// serveEndpoints greets each client with the letter of the port, and echoes.
func serveEndpoints(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var serving sync.WaitGroup
	defer serving.Wait()
	var at listening
	config := net.ListenConfig{KeepAlive: -1}
	for i := range letters {
		l, err := config.Listen(ctx, "tcp4", "0.0.0.0:0")
		if err != nil {
			return fmt.Errorf("reload: %w", err)
		}
		stop := context.AfterFunc(ctx, func() { _ = l.Close() })
		defer stop()
		defer l.Close()
		at.Ports = append(at.Ports, l.Addr().(*net.TCPAddr).Port)
		serving.Go(func() { greet(ctx, l, letters[i]) })
	}
	if err := json.NewEncoder(out).Encode(at); err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	_, _ = io.Copy(io.Discard, in)
	return nil
}

// greet serves one port.
func greet(ctx context.Context, l net.Listener, letter byte) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			if _, err := c.Write([]byte{letter}); err == nil {
				echo(c)
			}
		}()
	}
}

// echo sends all bytes back. Its buffer is small, for thousands of connections.
func echo(c net.Conn) {
	var b [64]byte
	for {
		n, err := c.Read(b[:])
		if err == nil {
			_, err = c.Write(b[:n])
		}
		if err != nil {
			return
		}
	}
}
