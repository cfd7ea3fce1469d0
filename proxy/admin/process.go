package admin

import (
	"context"
	"fmt"
	"net/http"

	"github.com/penstock/penstock/internal/doctor"
)

// process handles GET /v1/process.
func (s *Server) process(context.Context, *arguments) (any, error) {
	if s.cfg.Process == nil {
		return nil, fmt.Errorf("process: %w", ErrNotFound)
	}
	return s.cfg.Process(), nil
}

// Process returns the report on what limits the process.
func (c *Client) Process(ctx context.Context) (r doctor.Report, err error) {
	return r, c.do(ctx, http.MethodGet, "/v1/process", nil, &r)
}
