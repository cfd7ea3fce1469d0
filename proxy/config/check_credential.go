package config

import (
	"io/fs"
	"os"
	"strings"
)

// credential checks a secret that proves one side to the other, such as a token: it comes from a file or a variable,
// no other user may read the file, and it is one line. name is its name in messages. It reports whether all that is so
// of one that there is; a value that could not be read was reported.
func (k *checker) credential(s *Secret, section any, name string) bool {
	if k.bad[s] || *s == (Secret{}) {
		return false
	}
	at, in, path := k.at(s, section), s.Source, s.path()
	mode, err := fs.FileMode(0), error(nil)
	if path != "" {
		in = path
		mode, err = k.mode(path)
	}
	switch line := s.Value; {
	case s.Source == "":
		k.complainAt(at.discreet(), "write file:PATH or ${VARIABLE}", "%s is written in the configuration, which more users may read", name)
	case line == "":
		k.complainAt(at, "write it into "+in+", or leave it out", "%s is empty", name)
	case strings.Contains(line, "\n"):
		k.complainAt(at, "leave one line in "+in, "%s has %d lines", name, 1+strings.Count(line, "\n"))
	case strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }):
		k.complainAt(at, "write letters, digits and signs of ASCII", "%s has characters that a header cannot have", name)
	case strings.TrimSpace(line) != line:
		k.complainAt(at, "leave them out of "+in, "%s has spaces at its beginning or its end", name)
	case err != nil:
		k.complainAt(at, mend(err, maxBytes), "%v", err)
	case mode&0o007 != 0:
		k.complainAt(at, "chmod o= "+path, "every user of this machine may use %s (mode %#o)", path, mode.Perm())
	default:
		return true
	}
	return false
}

// path is the file that a secret comes from; "": none.
func (s *Secret) path() string {
	path, ok := strings.CutPrefix(s.Source, "file:")
	if !ok {
		return ""
	}
	return strings.ReplaceAll(path, "$$", "$")
}

// fileMode returns the mode of a file, for which a link stands.
func fileMode(path string) (fs.FileMode, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Mode(), nil
}
