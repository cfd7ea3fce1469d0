//go:build !linux

package proxy

import (
	"context"
	"errors"
)

// haveLoops: event loops need epoll(7).
const haveLoops = false

func (s *Server) openLoops(context.Context) error { return errors.ErrUnsupported }
