package switches

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
)

const (
	// A trial begins to measure when every connection has been accepted and
	// has had one message echoed on average; so long it may take for that
	// before the window, while the load warms up.
	settling        = 300 * time.Millisecond
	settlingOfEach  = 60 * time.Microsecond
	attempts        = 4 // each with twice the time of the one before
	look            = 20 * time.Millisecond
	patience        = 30 * time.Second // for anything but the measuring itself
	patienceForEach = 2 * time.Millisecond
	culprit         = 500 * time.Millisecond // for the death of a child that explains a failure
)

// errTooSlow is a load that was over before the window was.
var errTooSlow = errors.New("the connections were not all active for long enough: this machine is too busy; try fewer, or more --seconds")

// refusedError is the end of a server that got no more threads.
type refusedError struct{ said string }

func (e *refusedError) Error() string { return "the kernel refused a thread: " + e.said }

// trial measures a server once, in a process of its own.
func (b *bench) trial(ctx context.Context, s *server, n int) (Figures, error) {
	settle := settling + time.Duration(n)*settlingOfEach
	for attempt := 1; ; attempt++ {
		f, err := b.attempt(ctx, s, n, settle)
		if !errors.Is(err, errTooSlow) || attempt == attempts {
			return f, err
		}
		settle *= 2
	}
}

// attempt is a trial in which the load warms up for settle before the window.
func (b *bench) attempt(ctx context.Context, s *server, n int, settle time.Duration) (Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, settle+b.Window+patience+time.Duration(n)*patienceForEach)
	defer cancel()
	r, err := b.start(ctx, s, n)
	if err != nil {
		return Figures{}, err
	}
	defer r.server.Kill()
	f, err := r.measure(ctx, b.load, settle, b.Window)
	return f, r.blame(ctx, err, b.load)
}

// run is a server under load.
type run struct {
	server      *process.Child // owned here
	address     string
	connections int
	idle        memory // of the server without connections
}

// memory is the memory and the threads of a process.
type memory struct{ anonymous, threads int64 }

// start starts a server and waits until it listens.
func (b *bench) start(ctx context.Context, s *server, n int) (*run, error) {
	spec := b.Server(s.part())
	if spec.Env == nil {
		spec.Env = os.Environ()
	}
	// A runtime that gets no thread would print every goroutine, and bury why.
	spec.Env = append(spec.Env[:len(spec.Env):len(spec.Env)], "GOTRACEBACK=none")
	child, err := b.Group.Start(spec)
	if err != nil {
		return nil, err
	}
	r := &run{server: child, connections: n}
	var l listening
	if err = r.answer(ctx, &l); err == nil {
		r.address = l.Address
		r.idle, err = memoryOf(child.Pid())
	}
	var ended *process.EndedError
	if errors.As(err, &ended) {
		err = r.ended()
	}
	if err != nil {
		child.Kill()
		return nil, err
	}
	return r, nil
}

// answer reads the server's next line.
func (r *run) answer(ctx context.Context, v any) error {
	line, err := r.server.Stdout(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(line), v); err != nil {
		return fmt.Errorf("%s said %q: %w", r.server.Name(), line, err)
	}
	return nil
}

// ask has the server account for itself.
func (r *run) ask(ctx context.Context) (*account, error) {
	if err := r.server.Send("account"); err != nil {
		return nil, err
	}
	a := new(account)
	return a, r.answer(ctx, a)
}

// measure runs the load against the server and looks at it meanwhile. The load
// and the server count from the same moment on, the end of the load's warmup.
func (r *run) measure(ctx context.Context, from *process.Child, settle, window time.Duration) (Figures, error) {
	// The load goes on after the window for as long as it has warmed up: the server
	// has to answer for the window while all connections are still active, and it is
	// busy with them.
	over, err := r.drive(ctx, from, settle, settle+window+settle)
	if err != nil {
		return Figures{}, err
	}
	var first *account
	select {
	case <-over.warm:
		first, err = r.ask(ctx)
	case <-over.done:
		return Figures{}, cmp.Or(over.err, errTooSlow)
	}
	if err == nil && !r.busy(first) {
		err = errTooSlow
	}
	if err != nil {
		<-over.done
		return Figures{}, cmp.Or(over.err, err)
	}
	held, last, err := r.after(ctx, window)
	<-over.done
	switch {
	case over.err != nil:
		return Figures{}, over.err
	case err != nil:
		return Figures{}, err
	case last.Connections < r.connections:
		return Figures{}, errTooSlow
	}
	f := between(first, last)
	f.Mean, f.P50, f.P99 = seconds(over.result.Mean), seconds(over.result.P50), seconds(over.result.P99)
	f.MemoryPerConnection = report.Number(held.anonymous-r.idle.anonymous) / report.Number(r.connections)
	f.ThreadsPerConnection = report.Number(held.threads) / report.Number(r.connections)
	return f, nil
}

func seconds(d time.Duration) report.Number { return report.Number(d.Seconds()) }

// drive is a plan that the load carries out; result and err may be read once done is closed.
type drive struct {
	warm   chan struct{} // closed when the load has warmed up, if it does
	done   chan struct{}
	result load.Result
	err    error
}

// drive sends the load a plan for d, of which the beginning does not count, and follows it.
func (r *run) drive(ctx context.Context, from *process.Child, warmup, d time.Duration) (*drive, error) {
	plan := load.Plan{Workload: load.Echo, Address: r.address, Connections: r.connections, Size: Size, Warmup: warmup, Duration: d}
	if err := from.Send(plan); err != nil {
		return nil, err
	}
	o := &drive{warm: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(o.done)
		o.err = o.follow(ctx, from)
	}()
	return o, nil
}

// follow reads the events of the load until it is done.
func (o *drive) follow(ctx context.Context, from *process.Child) error {
	for {
		line, err := from.Stdout(ctx)
		if err != nil {
			return err
		}
		e, err := load.ReadEvent(line)
		switch {
		case err != nil:
			return err
		case e.Error != "":
			return errors.New(e.Error)
		case e.Warm:
			close(o.warm)
		case e.Result != nil:
			o.result = *e.Result
			return nil
		}
	}
}

// busy reports whether all connections were active at the time of the account.
func (r *run) busy(a *account) bool {
	return a.Connections == r.connections && a.Echoed >= int64(r.connections)*Size
}

// active waits until all connections are, and returns the server's account of
// that moment.
func (r *run) active(ctx context.Context, over *drive) (*account, error) {
	for {
		a, err := r.ask(ctx)
		if err != nil {
			return nil, err
		}
		if r.busy(a) {
			return a, nil
		}
		select {
		case <-time.After(look):
		case <-over.done:
			if over.err != nil {
				return nil, over.err
			}
			return nil, errTooSlow
		}
	}
}

// after looks at the server once d is over.
func (r *run) after(ctx context.Context, d time.Duration) (memory, *account, error) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return memory{}, nil, context.Cause(ctx)
	}
	last, err := r.ask(ctx)
	if err != nil {
		return memory{}, nil, err
	}
	held, err := memoryOf(r.server.Pid())
	return held, last, err
}

// memoryOf reads /proc/pid/status (proc(5)).
func memoryOf(pid int) (memory, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	kibibytes, err := field(status, "RssAnon")
	if err != nil {
		return memory{}, err
	}
	threads, err := field(status, "Threads")
	return memory{anonymous: kibibytes << 10, threads: threads}, err
}

// blame returns the cause of err: the end of ctx, the death of a child, or err itself.
func (r *run) blame(ctx context.Context, err error, from *process.Child) error {
	if err == nil || errors.Is(err, errTooSlow) {
		return err
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("not over in time: %w", err)
	}
	select {
	case <-r.server.Done():
		return r.ended()
	case <-from.Done():
		return from.Err()
	case <-time.After(culprit):
		return err
	}
}

// ended returns how the server ended: for want of threads, or otherwise. The runtime's words
// for the former are in its newosproc and _cgo_sys_thread_start.
func (r *run) ended() error {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		line, err := r.server.Stderr(gone)
		switch {
		case err != nil:
			return r.server.Err()
		case strings.Contains(line, "failed to create new OS thread"), strings.Contains(line, "pthread_create failed"):
			return &refusedError{strings.TrimPrefix(line, "runtime: ")}
		}
	}
}
