//go:build !linux

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock/penstock/proxy/config"
)

// openBalancer fails: a load balancer is served by loops, which need epoll.
func openBalancer(context.Context, *config.Config, balancerOptions) (loadBalancer, error) {
	return nil, fmt.Errorf("run: %w: this system has no epoll", errors.ErrUnsupported)
}
