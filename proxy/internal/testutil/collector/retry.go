package collector

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// retryable returns an error that says when to try again, if that is not 0.
func retryable(s *status.Status, after time.Duration) error {
	if after == 0 {
		return s.Err()
	}
	detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)})
	if err != nil {
		return err
	}
	return detailed.Err()
}
