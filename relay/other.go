//go:build !linux

package relay

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
)

// A descriptor does not exist on this system: every end is moved by its own Read
// and Write.
type descriptor struct {
	source
	sink
	raw  syscall.RawConn
	fd   int
	kind kind
}

type kind uint8

const regular kind = iota

func framingOfFile(*os.File) framing { return unknown }

func wholeMessages(r io.Reader) io.Reader { return r }

func newDescriptor(any, *legState) *descriptor { return nil }

func (*descriptor) untaken(bool) int64 { return 0 }

func (*descriptor) stopped() bool { return false }

func (l *legState) aborted(any) bool { return false }

func (l *legState) look(any) {}

func (p *loopSocket) inspect() Leg { return Leg{} }

func inspect(any) Leg { return Leg{} }

func (p *loopSocket) quiet() bool { return false }

func (p *loopSocket) unacknowledged() int { return 0 }

func unacknowledgedBy(any) int { return 0 }

func (p *loopSocket) acks() acks { return acks{} }

func acksBy(any) (a acks, known bool) { return acks{}, false }

func unreadBy(any) int { return 0 }

func isReset(any) bool { return false }

func (p *loopSocket) cutOff() int { return 0 }

func cutOffBy(any) int { return 0 }

func quiet(any) bool { return false }

func (p *loopSocket) recv([]byte) (int, error)           { return 0, errors.ErrUnsupported }
func (p *loopSocket) discard([]byte) (int, error)        { return 0, errors.ErrUnsupported }
func (p *loopSocket) recvBeneath([]byte) (int, error)    { return 0, errors.ErrUnsupported }
func (p *loopSocket) fill(splicePipe, int) (int, error)  { return 0, errors.ErrUnsupported }
func (p *loopSocket) peek(err error) (int, error)        { return 0, err }
func (p *loopSocket) send([]byte) (int, error)           { return 0, errors.ErrUnsupported }
func (p *loopSocket) sendUrgent([]byte) (int, error)     { return 0, errors.ErrUnsupported }
func (p *loopSocket) atMark() bool                       { return false }
func (p *loopSocket) drain(splicePipe, int) (int, error) { return 0, errors.ErrUnsupported }
func (p *loopSocket) closeWrite() error                  { return errors.ErrUnsupported }
func (p *loopSocket) raiseMark(int) bool                 { return false }
func (p *loopSocket) lowerMark()                         {}
func (p *loopSocket) giveUpAfter(time.Duration)          {}
func (p *loopSocket) aborted() bool                      { return false }
func (p *loopSocket) queued() int                        { return 0 }
func (p *loopSocket) socketError() error                 { return nil }
func (p *loopSocket) abort(bool) int64                   { return 0 }
func (p *loopSocket) close()                             {}
