package wasm

import "sync"

// A Pool holds instances of a module that callers use one after the other. Several goroutines may use it.
type Pool struct {
	make        func() (*Instance, error)
	most, spare int

	mu     sync.Mutex
	idle   []*Instance // the last one was used last
	out    int         // number in use
	closed bool
	makes  bool // a goroutine makes spare instances

	goroutines sync.WaitGroup
}

// NewPool returns a pool of up to most instances. It makes them by the function instance: when a caller needs one,
// or earlier, on a goroutine of its own, so that as many as spare are ready.
func NewPool(most, spare int, instance func() (*Instance, error)) *Pool {
	return &Pool{make: instance, most: max(most, 1), spare: spare}
}

// Get returns an instance that no other caller has. The error is [ErrBusy] if as many as most are in use, or the
// error of making one. The caller gives the instance back with Put.
func (p *Pool) Get() (*Instance, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		i := p.idle[n-1]
		p.idle[n-1], p.idle = nil, p.idle[:n-1]
		p.out++
		p.makeSpare()
		p.mu.Unlock()
		return i, nil
	}
	if p.out >= p.most {
		p.mu.Unlock()
		return nil, ErrBusy
	}
	p.out++
	p.mu.Unlock()
	i, err := p.make()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.out--
		return nil, err
	}
	p.makeSpare()
	return i, nil
}

// makeSpare starts making spare instances if there are too few. It is called with mu held, and only after an instance could
// begin: so an instance that cannot begin costs no more than its callers.
func (p *Pool) makeSpare() {
	if p.lacks() && !p.makes {
		p.makes = true
		p.goroutines.Go(p.makeSpares)
	}
}

// lacks reports whether there are too few spare instances. Used and spare instances together are never more than most.
func (p *Pool) lacks() bool { return !p.closed && len(p.idle) < min(p.spare, p.most-p.out) }

func (p *Pool) makeSpares() {
	for {
		i, err := p.make()
		p.mu.Lock()
		keep := err == nil && p.lacks()
		if keep {
			p.idle = append(p.idle, i)
		}
		p.makes = err == nil && p.lacks()
		more := p.makes
		p.mu.Unlock()
		if err == nil && !keep {
			i.Close()
		}
		if !more {
			return
		}
	}
}

// Put gives an instance back. It closes a failed instance and, after Close, every instance.
func (p *Pool) Put(i *Instance) {
	p.mu.Lock()
	p.out--
	keep := !p.closed && !i.failed
	if keep {
		p.idle = append(p.idle, i)
	}
	p.makeSpare()
	p.mu.Unlock()
	if !keep {
		i.Close()
	}
}

// Sizes returns how many instances are in use, and how many are idle.
func (p *Pool) Sizes() (out, idle int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out, len(p.idle)
}

// Wait waits until no spare instance is being made, after [Pool.Close].
func (p *Pool) Wait() { p.goroutines.Wait() }

// Close closes the instances that are not in use; Put closes the others. Get still makes instances, for callers that are
// late.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, i := range idle {
		i.Close()
	}
}
