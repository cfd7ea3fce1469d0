//go:build !linux

package loop

import (
	"errors"
	"fmt"
)

// The bits of Events.
const (
	Readable   Events = 1 << iota // there are bytes, an end of file, or connections to accept
	Writable                      // there is room, or a connect has ended
	Urgent                        // TCP urgent data waits
	PeerClosed                    // no more bytes will come than those that wait
	Failed                        // SO_ERROR has the reason
	HungUp                        // both ways are shut
)

const edges, queue = 0, 0

var errUnsupported = fmt.Errorf("epoll: %w", errors.ErrUnsupported)

// A poller is an epoll instance, which this system does not have.
type poller struct{}

func (p *poller) open() error                               { return errUnsupported }
func (p *poller) close() error                              { return nil }
func (p *poller) watch(int) error                           { return errUnsupported }
func (p *poller) add(int, ID, uint8, uint32) error          { return errUnsupported }
func (p *poller) remove(int) error                          { return errUnsupported }
func (p *poller) poll() (int, error)                        { return 0, errUnsupported }
func (p *poller) rest(int64)                                {}
func (p *poller) block(int64) (int, error)                  { return 0, errUnsupported }
func (p *poller) event(int) (uint32, uint32, uint8, Events) { return 0, 0, 0, 0 }
