package incident

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// The parts.
const (
	partPrefix    = "incident-"
	PartEndpoints = partPrefix + "endpoints"
	PartLoad      = partPrefix + "load"
)

// IsPart reports whether RunPart runs a part of that name.
func IsPart(part string) bool { return part == PartEndpoints || part == PartLoad }

// RunPart runs a part until ctx is done or in ends, or its work is done. What it reads
// and prints are lines of JSON.
func RunPart(ctx context.Context, part string, in io.Reader, out io.Writer) error {
	var err error
	switch part {
	case PartEndpoints:
		err = runEndpoints(ctx, in, out)
	case PartLoad:
		err = runLoad(ctx, in, out)
	default:
		return fmt.Errorf("incident: no part %q", part)
	}
	if err != nil {
		return fmt.Errorf("incident: the %s: %w", strings.TrimPrefix(part, partPrefix), err)
	}
	return nil
}
