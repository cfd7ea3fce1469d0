package wasm

import "sync"

// A Pool is instances of a module that callers use one after the other. Several goroutines may use it.
type Pool struct {
	make        func() (*Instance, error)
	most, spare int

	mu     sync.Mutex
	idle   []*Instance // the last used is the last
	out    int         // in use
	closed bool
	makes  bool // spare ones, on a goroutine

	goroutines sync.WaitGroup
}

// NewPool returns a pool of at most most instances. instance makes them when they are needed, or before, so that spare of them
// are ready. One goroutine of the pool's makes these.
func NewPool(most, spare int, instance func() (*Instance, error)) *Pool {
	return &Pool{make: instance, most: max(most, 1), spare: spare}
}

// Get returns an instance that no other caller has, with [ErrBusy] if there are as many as may be, or with the
// error of making one. It is given back by Put.
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

// makeSpare has spare instances made if there are too few. It is called with mu held, where an instance could begin. So an instance that cannot begin costs
// no more than its callers.
func (p *Pool) makeSpare() {
	if p.lacks() && !p.makes {
		p.makes = true
		p.goroutines.Go(p.makeSpares)
	}
}

// lacks reports whether there are too few instances. Those in use and the others are never more than may be in use.
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

// Put gives an instance back. A failed instance is closed, and after Close every instance is.
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

// Sizes returns how many instances are in use, and how many wait for it.
func (p *Pool) Sizes() (out, idle int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out, len(p.idle)
}

// Wait waits until no spare instance is being made, after [Pool.Close].
func (p *Pool) Wait() { p.goroutines.Wait() }

// Close closes the instances that are not in use; the others are closed when they are given back. Get goes on
// to make instances, for callers that are late.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, i := range idle {
		i.Close()
	}
}
