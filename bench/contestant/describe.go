package contestant

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"

	"github.com/penstock/penstock/bench/process"
)

// Describe shortens the last output in an error of package process to the complaints of the process, which is a
// child of this program or a contestant. It returns other errors, and nil, unchanged.
func Describe(err error) error {
	var ended *process.EndedError
	if errors.As(err, &ended) {
		ended.Said = complaint(ended.Said)
	}
	return err
}

// complaint returns the message in a child's last line, which may be a line of a JSON log. A JSON line with a
// level below warning is no complaint.
func complaint(line string) string {
	line = strings.TrimPrefix(line, "penstock: ") // the name of the penstock program, and of this program
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
