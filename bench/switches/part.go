package switches

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// listening is the first line that a part prints.
type listening struct {
	Address string `json:"address"`
}

// RunPart runs one of the servers, such as "switches-threads", on a free port of
// loopback until ctx is done or in ends. It first prints where it listens, then
// answers every line from in with an account of itself, both as a line of JSON.
func RunPart(ctx context.Context, part string, in io.Reader, out io.Writer) error {
	s, err := builtServer(part)
	if err != nil {
		return err
	}
	if err := raiseProcesses(); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	config := net.ListenConfig{KeepAlive: -1} // spares 10,000 connections three calls each
	l, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("switches: %w", err)
	}
	open := newCensus(ctx)
	defer open.stop()
	go func() { end(tell(l.Addr().String(), open, in, out)) }()
	if err := s.serve(ctx, l.(*net.TCPListener), open); err != nil {
		return fmt.Errorf("switches: %s: %w", s.name, err)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return fmt.Errorf("switches: %w", cause)
	}
	return nil
}

// tell writes the address of the server, and an account for each request.
func tell(address string, open *census, in io.Reader, out io.Writer) error {
	encoder, begun := json.NewEncoder(out), time.Now()
	if err := encoder.Encode(listening{address}); err != nil {
		return err
	}
	asked := bufio.NewScanner(in)
	for asked.Scan() {
		used, err := sys.Getrusage(sys.RUSAGE_SELF)
		if err != nil {
			return err
		}
		if err := encoder.Encode(account{
			At: time.Since(begun), CPU: used.Utime + used.Stime,
			Switches: used.Nvcsw + used.Nivcsw, Connections: open.count(), Echoed: open.echoed.Load(),
		}); err != nil {
			return err
		}
	}
	return asked.Err()
}

// raiseProcesses raises the soft limit on this user's threads to the hard one,
// as the Go runtime does with the one on descriptors.
func raiseProcesses() error {
	soft, hard, err := sys.RlimitNProc()
	if err != nil || soft == hard {
		return err
	}
	return sys.SetRlimitNProc(hard, hard)
}
