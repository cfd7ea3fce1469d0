package wasm

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// An Instance is a memory with the functions of a module. One goroutine at a time uses it.
type Instance struct {
	// State belongs to the caller and its functions.
	State any

	module   *Module
	instance api.Module
	memory   memory
	stack    api.Global
	deadline deadline
	failed   bool
	values   [8]uint64
}

// A Function is a function that an instance exports.
type Function struct {
	f       api.Function
	results int
	running bool // on its own stack, which has no room for a second call
}

// Instantiate makes an instance, and runs its start function and _initialize, for at most [Bounds].Start. output gets the
// module's standard output and error output; nil: they are thrown away. state becomes [Instance.State].
func (m *Module) Instantiate(output io.Writer, state any) (*Instance, error) {
	if output == nil {
		output = io.Discard
	}
	i := &Instance{module: m, State: state}
	i.memory.most = uint64(m.bounds.Memory)
	i.deadline = deadline{instance: i, done: make(chan struct{})}
	i.deadline.timer = time.AfterFunc(time.Hour, i.deadline.expire)
	i.deadline.timer.Stop()
	ctx := experimental.WithMemoryAllocator(&i.deadline, experimental.MemoryAllocatorFunc(i.memory.allocate))
	if err := i.begin(ctx, limited{output, &i.deadline}); err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}

// Function returns an exported function, or nil. Look a function up only once.
func (i *Instance) Function(name string) *Function {
	f := i.instance.ExportedFunction(name)
	if f == nil {
		return nil
	}
	return &Function{f: f, results: len(f.Definition().ResultTypes())}
}

// Begin bounds the time of the calls until [Instance.End].
func (i *Instance) Begin(d time.Duration) { i.deadline.timer.Reset(d) }

// End stops the time limit that Begin started. An error means that the time was over: then the instance cannot be used any
// more, even if its last call ended in time.
func (i *Instance) End() error {
	if !i.deadline.timer.Stop() {
		i.failed = true
		return ErrTimeout
	}
	return nil
}

// Call calls a function with all its parameters, eight at most, and returns its result, if it has one. After an
// error the instance cannot be used any more. The call ends soon after the deadline, see [Instance.Begin]; without a
// deadline it may take any time. Meanwhile a function of the host may call other functions, but none that is
// running.
func (i *Instance) Call(f *Function, params ...uint64) (uint64, error) {
	switch {
	case i.failed:
		return 0, ErrClosed
	case f.running:
		return 0, fmt.Errorf("%w: it has the host call a function that is running", ErrTrap)
	}
	copy(i.values[:], params)
	i.values[len(params)] = 0
	f.running = true
	err := f.f.CallWithStack(&i.deadline, i.values[:max(len(params), f.results)])
	f.running = false
	if err != nil || i.memory.refused {
		i.failed = true
		if err == nil {
			err = ErrMemory
		}
		return 0, i.failure(err)
	}
	return i.values[0], nil
}

// Failed reports whether the instance cannot be used any more.
func (i *Instance) Failed() bool { return i.failed }

// Bytes returns a piece of the memory: the module's own bytes, valid until the module goes on. ok is false if the piece is
// not within the memory.
func (i *Instance) Bytes(at, n uint32) (b []byte, ok bool) {
	m := i.memoryNow()
	if uint64(at)+uint64(n) > uint64(len(m)) {
		return nil, false
	}
	return m[at : at+n : at+n], true
}

func (i *Instance) memoryNow() []byte { return i.memory.b }

// Memory returns how much linear memory the instance has, in bytes.
func (i *Instance) Memory() int { return len(i.memory.b) }

// stackExhausted reports whether the module has ended for lack of stack, see [instrument].
func (i *Instance) stackExhausted() bool { return i.stack != nil && uint32(i.stack.Get()) == 1<<32-1 }

// Close frees the instance. No call may be in progress.
func (i *Instance) Close() {
	i.failed = true
	i.deadline.timer.Stop()
	if i.instance != nil {
		_ = i.instance.Close(context.Background())
	}
}

// A deadline is the context of the calls of one instance. It ends only once: then the instance cannot be used any more.
type deadline struct {
	instance *Instance
	timer    *time.Timer
	done     chan struct{}
	over     atomic.Bool

	mu sync.Mutex
	// global traps the compiled code once it is not zero. It is set while the code runs: one word that is written once, and
	// that only machine code loads meanwhile. nil: the module is interpreted, or has not begun.
	global api.MutableGlobal
}

func (d *deadline) expire() {
	if d.over.CompareAndSwap(false, true) {
		close(d.done)
	}
	d.trap()
}

// trapBy sets the instance's global.
func (d *deadline) trapBy(global api.MutableGlobal) {
	d.mu.Lock()
	d.global = global
	d.mu.Unlock()
	if d.over.Load() {
		d.trap()
	}
}

func (d *deadline) trap() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.global != nil {
		d.global.Set(1)
	}
}

// Deadline implements context.Context. wazero does not call it.
func (d *deadline) Deadline() (time.Time, bool) { return time.Time{}, false }

func (d *deadline) Done() <-chan struct{} { return d.done }

func (d *deadline) Err() error {
	if d.over.Load() {
		return fmt.Errorf("%w: %w", ErrTimeout, context.DeadlineExceeded)
	}
	return nil
}

func (d *deadline) Value(key any) any {
	if key == (instanceKey{}) {
		return d.instance
	}
	return nil
}

type instanceKey struct{}

func instanceOf(ctx context.Context) *Instance { return ctx.Value(instanceKey{}).(*Instance) }

// A memory is the linear memory of an instance.
type memory struct {
	b       []byte
	most    uint64
	refused bool // it wanted to be larger than it may
}

func (m *memory) allocate(_, _ uint64) experimental.LinearMemory { return m }

// Reallocate implements experimental.LinearMemory. The memory grows at least by half, so that a memory that grows page by
// page is not copied each time.
func (m *memory) Reallocate(size uint64) []byte {
	switch {
	case size > m.most:
		m.refused = true
		return nil
	case size > uint64(cap(m.b)):
		b := make([]byte, size, min(max(size, uint64(len(m.b))*3/2), m.most))
		copy(b, m.b)
		m.b = b
	default:
		m.b = m.b[:size]
	}
	return m.b
}

func (m *memory) Free() { m.b = nil }

// random is the source of random bytes of modules.
type random struct{}

func (random) Read(b []byte) (int, error) { return rand.Read(b) }

// limited passes on the output of a module until its deadline, piece by piece.
type limited struct {
	io.Writer
	deadline *deadline
}

func (l limited) Write(b []byte) (n int, err error) {
	for piece := range slices.Chunk(b, 4<<10) {
		if err = l.deadline.Err(); err == nil {
			_, err = l.Writer.Write(piece)
		}
		if err != nil {
			return n, err
		}
		n += len(piece)
	}
	return n, nil
}
