//go:build !linux

package loop

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// The bits of Events.
const (
	Readable   Events = 1 << iota // there are bytes, an end of file, or connections to accept
	Writable                      // there is room, or a connect has ended
	Urgent                        // TCP urgent data waits
	PeerClosed                    // no more bytes will come than already wait
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
func (p *poller) add(int, ID, uint32) error                 { return errUnsupported }
func (p *poller) remove(int) error                          { return errUnsupported }
func (p *poller) poll() (int, error)                        { return 0, errUnsupported }
func (p *poller) rest(int64)                                {}
func (p *poller) block(int64) (int, error)                  { return 0, errUnsupported }
func (p *poller) event(int) (uint32, uint32, uint8, Events) { return 0, 0, 0, 0 }

func wake(int) {}

type netpollWake struct{}

func (*netpollWake) wait()        {}
func (*netpollWake) close() error { return nil }

func threadTime() cpuTime { return cpuTime{} }

func checkListener(int) error     { return errUnsupported }
func closeSocket(int)             {}
func abortOnClose(int)            {}
func socketError(int) error       { return errUnsupported }
func connect(int, *Address) error { return errUnsupported }
func localPath(string) bool       { return false }
func ephemeral(uint16) bool       { return false }
func toItself(int, uint16) bool   { return false }

func accept(int) (int, netip.AddrPort, error) { return -1, netip.AddrPort{}, errUnsupported }

func openSocket(*Address, *DialConfig) (int, error) { return -1, errUnsupported }

func duplicate(syscall.Conn) (int, error) { return -1, errUnsupported }

func readSocket(int, []byte) (int, error) { return 0, errUnsupported }
func sendSocket(int, []byte) (int, error) { return 0, errUnsupported }
func shutdownWrite(int) error             { return errUnsupported }
func stoppedAtMark(int) bool              { return false }
func setOptions(int)                      {}
func localAddr(int) net.Addr              { return nil }

func owned() bool { return false }

func (l *load) follow() {}

func (l *load) leave() { l.batch = false }
