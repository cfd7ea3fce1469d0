package contestant

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"

	"github.com/penstock/penstock/bench/process"
)

// Describe reduces the last words in an error of package process (of a child of this program,
// or of a contestant) to complaints. Other errors, and nil, are returned as they are.
func Describe(err error) error {
	var ended *process.EndedError
	if errors.As(err, &ended) {
		ended.Said = complaint(ended.Said)
	}
	return err
}

// complaint takes the message out of a child's last line, which may be a line of a JSON log.
// Such a line below a warning is no complaint.
func complaint(line string) string {
	line = strings.TrimPrefix(line, "penstock: ") // the program's name, which is ours too
	var log struct {
		Level slog.Level
		Msg   string
	}
	switch err := json.Unmarshal([]byte(line), &log); {
	case err != nil:
		return line
	case log.Level < slog.LevelWarn:
		return ""
	}
	return log.Msg
}
