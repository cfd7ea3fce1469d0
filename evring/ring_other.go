//go:build !linux

package evring

import (
	"os"

	"github.com/penstock/penstock/internal/feature"
)

var errOther = &feature.Error{Feature: "evring"}

// descriptors is nothing here.
type descriptors struct{}

// New returns an error that wraps errors.ErrUnsupported.
func New(*Config) (*Ring, error) { return nil, errOther }

// Open returns an error that wraps errors.ErrUnsupported.
func Open(memfd, eventfd int) (*Ring, error) { return nil, errOther }

// Close returns an error that wraps errors.ErrUnsupported.
func (r *Ring) Close() error { return errOther }

// Eventfd returns -1.
func (r *Ring) Eventfd() int { return -1 }

// Files returns an error that wraps errors.ErrUnsupported.
func (r *Ring) Files() (memory, event *os.File, err error) { return nil, nil, errOther }

func (*Ring) wake(uint32) {}
func (*Ring) clear()      {}
