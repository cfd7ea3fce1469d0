package incident

import (
	"context"
	"fmt"
	"io"
)

// PartLoad is the name of the part that makes the requests.
const PartLoad = "incident-load"

// RunPart runs it until ctx is done or in ends, or its work is done. Its input and output are
// lines of JSON.
func RunPart(ctx context.Context, in io.Reader, out io.Writer) error {
	if err := runLoad(ctx, in, out); err != nil {
		return fmt.Errorf("incident: the load: %w", err)
	}
	return nil
}
