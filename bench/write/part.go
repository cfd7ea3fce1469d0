package write

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// PartSink is the name of the part that receives; those that write are partPrefix
// and the name of a way.
const (
	partPrefix = "write-"
	PartSink   = partPrefix + "sink"
)

// listening is the first line that the sink prints.
type listening struct {
	Address string `json:"address"`
}

// plan is the plan of a part that writes, which it reads from its standard input. The part
// reports when it has connected and written the warm-up. It answers each following turn with
// an account, and one of no batches with that of the end.
type plan struct {
	Address string `json:"address"`           // of the sink
	Pieces  []int  `json:"pieces"`            // of a batch
	Warmup  int64  `json:"warmup"`            // batches before the first turn
	Profile string `json:"profile,omitempty"` // a file for the CPU profile of the turns
}

// turn is one measurement.
type turn struct {
	Warmup  int64 `json:"warmup"` // batches that are not measured
	Batches int64 `json:"batches"`
}

// message is a line of output of a part that writes.
type message struct {
	Turn *account `json:"turn,omitempty"`
	// Arrived is said once all bytes have been confirmed by the sink.
	Arrived bool `json:"arrived,omitempty"`
}

// IsPart reports whether RunPart runs a part of that name.
func IsPart(part string) bool {
	_, err := wayOf(part)
	return err == nil || part == PartSink
}

// RunPart runs the sink on a free port of loopback until ctx is done or in ends, after it has
// printed its address. Or it runs one of the ways to write, which reads a plan, carries it out
// and prints the results. All are lines of JSON.
func RunPart(ctx context.Context, part string, in io.Reader, out io.Writer) error {
	var err error
	if part == PartSink {
		err = runSink(ctx, in, out)
	} else {
		var w *way
		if w, err = wayOf(part); err != nil {
			return err
		}
		err = runWay(ctx, w, in, out)
	}
	if err != nil {
		return fmt.Errorf("write: %s: %w", strings.TrimPrefix(part, partPrefix), err)
	}
	return nil
}

func runSink(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(listening{l.Addr().String()}); err != nil {
		return errors.Join(err, l.Close())
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
	}()
	return serveSink(ctx, l)
}

// runWay carries out one plan.
func runWay(ctx context.Context, w *way, in io.Reader, out io.Writer) error {
	var p plan
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	if err := from.Decode(&p); err != nil {
		return fmt.Errorf("the plan: %w", err)
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp4", p.Address)
	if err != nil {
		return err
	}
	wr, err := w.open(c.(*net.TCPConn), p.Pieces)
	if err != nil {
		_ = c.Close()
		return err
	}
	defer wr.close()
	s := &sender{writer: wr, from: newSource(p.Pieces), bytes: bytesOf(p.Pieces)}
	if err := s.write(p.Warmup); err != nil {
		return err
	}
	if err := to.Encode(message{}); err != nil {
		return err
	}
	stop, err := profile(p.Profile)
	if err != nil {
		return err
	}
	err = s.turns(from, to)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	if err := s.confirm(); err != nil {
		return err
	}
	return to.Encode(message{Arrived: true})
}

// sender is a connection with its source of batches.
type sender struct {
	writer
	from    *source
	bytes   int64 // of a batch
	batches int64 // written so far
}

func (s *sender) write(batches int64) error {
	s.batches += batches
	return s.writer.write(s.from, batches)
}

// turns takes them until there is one of no batches.
func (s *sender) turns(from *json.Decoder, to *json.Encoder) error {
	for {
		var t turn
		if err := from.Decode(&t); err != nil {
			return fmt.Errorf("a turn: %w", err)
		}
		if t.Batches == 0 {
			return nil
		}
		if err := s.write(t.Warmup); err != nil {
			return err
		}
		a, err := s.measure(t.Batches)
		if err != nil {
			return err
		}
		if err := to.Encode(message{Turn: a}); err != nil {
			return err
		}
	}
}

// confirm ends the stream and compares the bytes that have arrived with the bytes written.
func (s *sender) confirm() error {
	c, err := s.end()
	if err != nil {
		return err
	}
	count := make([]byte, countSize)
	if _, err := io.ReadFull(c, count); err != nil {
		return fmt.Errorf("the sink's count: %w", err)
	}
	if got, want := int64(binary.BigEndian.Uint64(count)), s.batches*s.bytes; got != want {
		return fmt.Errorf("%d bytes of %d arrived", got, want)
	}
	return nil
}

// bytesOf is the sum of pieces.
func bytesOf(pieces []int) (sum int64) {
	for _, n := range pieces {
		sum += int64(n)
	}
	return sum
}
