//go:build !linux

package relay

import "errors"

func (p *port) recv([]byte) (int, error)        { return 0, errors.ErrUnsupported }
func (p *port) fill(conduit, int) (int, error)  { return 0, errors.ErrUnsupported }
func (p *port) peek(err error) (int, error)     { return 0, err }
func (p *port) send([]byte) (int, error)        { return 0, errors.ErrUnsupported }
func (p *port) drain(conduit, int) (int, error) { return 0, errors.ErrUnsupported }
func (p *port) closeWrite() error               { return errors.ErrUnsupported }
func (p *port) raiseMark(int) bool              { return false }
func (p *port) lowerMark()                      {}
func (p *port) aborted() bool                   { return false }
func (p *port) queued() int                     { return 0 }
func (p *port) socketError() error              { return nil }
func (p *port) abort() int64                    { return 0 }
func (p *port) close()                          {}
