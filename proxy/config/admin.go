package config

// AdminBind reads the section of the admin API from a configuration file; it is nil, without a problem, if that
// is off. Apart from it, only the included files are read, as far as possible. Unset variables and
// unreadable files matter only if they may be the reason that no address was found: a token that
// cannot be read is empty. So the caller needs neither the variables nor the files of the process.
//
// The problems have no lines of the files: another user may have written the first one, and had it include a file
// that only its reader may read.
func AdminBind(path string, env Env) (*Admin, []Problem) {
	l := newLoader(env)
	l.adminOnly = true
	l.file(path, place{})
	return l.adminBind()
}

// AdminPlace is [AdminBind] of a file that was not named. It has the address alone, and reads no secret and no
// variable of the environment.
func AdminPlace(path string) (*Admin, []Problem) {
	l := newLoader(func(string) (string, bool) { return "", false })
	l.adminOnly, l.bindOnly = true, true
	l.file(path, place{})
	return l.adminBind()
}

func (l *loader) adminBind() (*Admin, []Problem) {
	a := l.cfg.Admin
	switch {
	case l.twice || l.bad[&l.cfg.Admin]:
		return nil, l.blind()
	case a == nil:
		return nil, nil
	case l.bad[&a.Bind]:
		return nil, l.blind()
	case a.Bind.Auto() && len(l.problems) > 0: // it may be in a part that was not read
		return nil, l.blind()
	}
	l.problems = nil
	(&checker{decoder: &l.decoder}).adminPlace(a)
	if len(l.problems) > 0 {
		return nil, l.blind()
	}
	return a, nil
}

// blind returns the problems without the lines of their files.
func (l *loader) blind() []Problem {
	problems := l.found()
	for i := range problems {
		problems[i].line, problems[i].secret = "", true
	}
	return problems
}

// conceal leaves the text of a file out of a problem of its syntax, unless it is the file that the caller has named.
func (l *loader) conceal(p *Problem) {
	if p != nil && l.adminOnly && (l.bindOnly || len(l.within) > 1) {
		p.Message, p.Fix = "this is not YAML", ""
	}
}
