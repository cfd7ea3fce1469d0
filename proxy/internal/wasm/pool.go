package wasm

import "sync"

// A Pool is instances of a module that are used by one after the other. It may be used by several goroutines.
type Pool struct {
	make func() (*Instance, error)
	most int

	mu     sync.Mutex
	idle   []*Instance // the one that was used last is the last
	out    int         // in use
	closed bool
}

// NewPool returns a pool of at most some instances, that are made by a function when they are needed.
func NewPool(most int, instance func() (*Instance, error)) *Pool {
	return &Pool{make: instance, most: max(most, 1)}
}

// Get returns an instance that no other caller has, with [ErrBusy] if there are as many as may be, or with the
// error of making one. It is given back by Put.
func (p *Pool) Get() (*Instance, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		i := p.idle[n-1]
		p.idle[n-1], p.idle = nil, p.idle[:n-1]
		p.out++
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
	if err != nil {
		p.mu.Lock()
		p.out--
		p.mu.Unlock()
	}
	return i, err
}

// Put gives an instance back. One that has failed is closed, and so is each one after Close.
func (p *Pool) Put(i *Instance) {
	p.mu.Lock()
	p.out--
	keep := !p.closed && !i.failed
	if keep {
		p.idle = append(p.idle, i)
	}
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
