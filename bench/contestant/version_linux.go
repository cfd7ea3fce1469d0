package contestant

import (
	"context"
	"os/exec"
	"regexp"
	"time"
)

// versionPatience is how long a program may take to say its version.
const versionPatience = 5 * time.Second

// versions find theirs in what the programs print.
var versions = map[string]*regexp.Regexp{
	"haproxy": regexp.MustCompile(`version (\S+)`),
	"nginx":   regexp.MustCompile(`nginx/(\S+)`),
	"envoy":   regexp.MustCompile(`version: [0-9a-f]+/([^/\s]+)`),
}

// Version returns what the kind's program says of its version, by running it
// with the flag for that. It is empty for kinds that are this program, and if
// the program is not to be had or says something else.
func (k *Kind) Version(s *Setting) string {
	v, ok := k.starter.(*server)
	if !ok {
		return ""
	}
	path, err := v.path(s)
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), versionPatience)
	defer cancel()
	flag := "-v"
	if v.binary == "envoy" {
		flag = "--version"
	}
	said, _ := exec.CommandContext(ctx, path, flag).CombinedOutput() // nginx writes it to standard error
	if found := versions[v.binary].FindSubmatch(said); found != nil {
		return string(found[1])
	}
	return ""
}
