//go:build !linux

package relay

import (
	"errors"
	"time"
)

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
func (p *loopSocket) abort() int64                       { return 0 }
func (p *loopSocket) close()                             {}
