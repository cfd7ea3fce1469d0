package reload

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// plan is the task of the clients.
type plan struct {
	Addresses []string `json:"addresses"` // of the listeners
	Idle      int      `json:"idle"`      // idle connections, spread over the addresses
	Busy      int      `json:"busy"`      // clients that open, echo and close again and again
}

// Clients has the results of the clients.
type Clients struct {
	Idle   int   `json:"idle"`   // connections that were idle
	Closed int64 `json:"closed"` // idle connections that ended, or did not echo at the end
	Served int64 `json:"served"` // connections opened, echoed on and closed meanwhile
	Failed int64 `json:"failed"` // other connections that were refused, reset or silent
	// P50, P99 and Longest are the times of whole connections, in seconds.
	P50     float64 `json:"p50_seconds"`
	P99     float64 `json:"p99_seconds"`
	Longest float64 `json:"longest_seconds"`
	Said    string  `json:"said,omitempty"` // the first failure
}

// event is a line of PartClients.
type event struct {
	Resting bool     `json:"resting,omitempty"` // all idle connections are open
	Clients *Clients `json:"clients,omitempty"` // the results, at the end
	Error   string   `json:"error,omitempty"`
}

// patience limits how long a client waits for anything.
const patience = 10 * time.Second

// crowd has the clients of a plan.
type crowd struct {
	plan
	ctx     context.Context
	resting []net.Conn
	ending  atomic.Bool
	closed  atomic.Int64
	served  atomic.Int64
	failed  atomic.Int64
	mu      sync.Mutex
	latency *hdrhistogram.Histogram // guarded by mu; nanoseconds
	said    string                  // guarded by mu
}

// runClients carries out the plan in the first line of in. The next line, or the end of in, ends the plan.
func runClients(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	say := json.NewEncoder(out)
	c := &crowd{ctx: ctx, latency: hdrhistogram.New(1, int64(time.Hour), 3)}
	if !lines.Scan() {
		return lines.Err()
	}
	if err := json.Unmarshal(lines.Bytes(), &c.plan); err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	defer c.close()
	if err := c.rest(); err != nil {
		return say.Encode(event{Error: err.Error()})
	}
	if err := say.Encode(event{Resting: true}); err != nil {
		return err
	}
	var busy sync.WaitGroup
	for i := range c.Busy {
		busy.Go(func() { c.work(i) })
	}
	lines.Scan()
	c.ending.Store(true)
	busy.Wait()
	return say.Encode(event{Clients: c.sum()})
}

// dial opens a connection, and waits for the greeting.
func (c *crowd) dial(address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: patience, KeepAlive: -1}
	conn, err := dialer.DialContext(c.ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("no greeting: %w", err)
	}
	return conn, nil
}

// rest opens the idle connections, and watches them.
func (c *crowd) rest() error {
	for i := range c.Idle {
		conn, err := c.dial(c.Addresses[i%len(c.Addresses)])
		if err != nil {
			return fmt.Errorf("connection %d of %d: %w", i+1, c.Idle, err)
		}
		_ = conn.SetDeadline(time.Time{})
		c.resting = append(c.resting, conn)
	}
	return nil
}

// work opens a connection, echoes and closes it, again and again until the end.
func (c *crowd) work(i int) {
	for ; !c.ending.Load() && c.ctx.Err() == nil; i++ {
		began := time.Now()
		if err := c.once(c.Addresses[i%len(c.Addresses)]); err != nil {
			c.failed.Add(1)
			c.tell(err)
			time.Sleep(time.Millisecond)
			continue
		}
		c.served.Add(1)
		c.mu.Lock()
		_ = c.latency.RecordValue(int64(time.Since(began)))
		c.mu.Unlock()
	}
}

func (c *crowd) once(address string) error {
	conn, err := c.dial(address)
	if err != nil {
		return err
	}
	defer conn.Close()
	return ask(conn)
}

func ask(conn net.Conn) error {
	if _, err := conn.Write([]byte{'x'}); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

func (c *crowd) tell(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.said == "" {
		c.said = err.Error()
	}
}

// sum checks whether the idle connections still work, and adds up the results.
func (c *crowd) sum() *Clients {
	for _, conn := range c.resting {
		_ = conn.SetDeadline(time.Now().Add(patience))
		if err := ask(conn); err != nil {
			c.closed.Add(1)
			if errors.Is(err, syscall.ECONNRESET) {
				err = fmt.Errorf("an idle connection was reset: %w", err)
			}
			c.tell(err)
		}
	}
	seconds := func(n int64) float64 { return time.Duration(n).Seconds() }
	return &Clients{
		Idle: len(c.resting), Closed: c.closed.Load(), Served: c.served.Load(), Failed: c.failed.Load(), Said: c.said,
		P50: seconds(c.latency.ValueAtQuantile(50)), P99: seconds(c.latency.ValueAtQuantile(99)), Longest: seconds(c.latency.Max()),
	}
}

func (c *crowd) close() {
	for _, conn := range c.resting {
		_ = conn.Close()
	}
}

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
