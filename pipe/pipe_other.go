//go:build !linux

package pipe

import "github.com/penstock/penstock/internal/feature"

var errOther = &feature.Error{Feature: "pipe"}

// Open returns an error that matches ErrNotSupported.
func Open(int) (*Pipe, error) { return nil, errOther }

// Fill returns an error that matches ErrNotSupported.
func (p *Pipe) Fill(fd, max int) (int, error) { return 0, errOther }

// FillSocket returns an error that matches ErrNotSupported.
func (p *Pipe) FillSocket(fd, max int) (int, error) { return 0, errOther }

// Drain returns an error that matches ErrNotSupported.
func (p *Pipe) Drain(fd, max int) (int, error) { return 0, errOther }

// DrainSocket returns an error that matches ErrNotSupported.
func (p *Pipe) DrainSocket(fd, max int) (int, error) { return 0, errOther }

// Tee returns an error that matches ErrNotSupported.
func (p *Pipe) Tee(to *Pipe, max int) (int, error) { return 0, errOther }

// Write returns an error that matches ErrNotSupported.
func (p *Pipe) Write([]byte) (int, error) { return 0, errOther }

// Read returns an error that matches ErrNotSupported.
func (p *Pipe) Read([]byte) (int, error) { return 0, errOther }

// Close returns an error that matches ErrNotSupported.
func (p *Pipe) Close() error { return errOther }

// readLimits returns limits that allow nothing.
func readLimits() limits { return limits{pageSize: 4096, maxSize: DefaultSize} }
