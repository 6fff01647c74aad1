package runtimecheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"airlift/images/store"
	"airlift/internal/fault"
)

// A Check is about the files that a containerd reads at its next start.
type Check struct {
	// Open returns the containerd that will start. It is called only if something has to be evaluated.
	Open func(context.Context) (Binary, error)
	// Files are the files of the host, whose root is /, and those that will be written before containerd starts.
	Files fs.FS
	// Config is the path of the configuration file.
	Config string
	// Written is set if Airlift wrote that file and nobody edited it: alone, it is right.
	Written bool
	// Need is what the node needs; nil for what the configuration file has alone.
	Need *Need
	// Adjust changes what the configuration file has alone to what the node needs; it may be nil.
	Adjust func(*Need)
}

// Problems returns the problems, one for each file. An error is why containerd could not be asked.
func (c Check) Problems(ctx context.Context) (list []Problem, err error) {
	texts, err := store.ReadConfigTexts(c.Files, c.Config)
	if bad := (*store.BadConfigError)(nil); errors.As(err, &bad) {
		return []Problem{c.problem(bad.Path, []finding{{message: "containerd does not start with it: " + bad.Err.Error()}})}, nil
	}
	if err != nil {
		return nil, err
	}
	list = c.notRead(texts)
	if c.Need == nil && (len(texts) == 0 || c.Written && len(texts) == 1) {
		return list, nil
	}
	b, err := c.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	need, err := c.need(ctx, b, texts)
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		return append([]Problem{c.problem(c.Config, []finding{refusal(refused)})}, list...), nil
	}
	if err != nil {
		return nil, err
	}
	found, err := c.findings(ctx, b, need, texts)
	if err != nil {
		return nil, err
	}
	if len(texts) == 0 && len(found) > 0 {
		p := c.problem(c.Config, append([]finding{{message: "it does not exist, so containerd has its defaults", warning: true}}, found...))
		p.Fix = "write the file as the running containerd has read it, and test it: containerd --config " + fault.Word(c.Config) + " config dump"
		return append([]Problem{p}, list...), nil
	}
	causes, err := c.causes(ctx, b, need, texts, found)
	if err != nil {
		return nil, err
	}
	var problems []Problem
	for _, text := range texts {
		if text.Missing {
			list = append(list, Problem{
				File: text.Path, Warning: true, Message: text.Path + ": it is imported and does not exist: containerd reads no file after it",
				Fix: "remove it from the imports: grep -l " + fault.Word(path.Base(text.Path)) + " " + path.Dir(c.Config) + "/*.toml " + path.Dir(c.Config) + "/*/*.toml; or the link: rm -i " + fault.Word(text.Path),
			})
		}
		if mine := causes[text.Path]; len(mine) > 0 {
			problems = append(problems, c.problem(text.Path, mine))
		}
	}
	return append(problems, list...), nil
}

// need returns what the node needs.
func (c Check) need(ctx context.Context, b Binary, texts []store.ConfigText) (Need, error) {
	if c.Need != nil {
		return *c.Need, nil
	}
	alone, err := b.Effective(ctx, texts[:1])
	if err != nil {
		return Need{}, err
	}
	need := NeedOf(alone)
	if c.Adjust != nil {
		c.Adjust(&need)
	}
	return need, nil
}

// findings compares what containerd makes of files with what the node needs.
func (c Check) findings(ctx context.Context, b Binary, need Need, texts []store.ConfigText) ([]finding, error) {
	e, err := b.Effective(ctx, texts)
	if refused := (*RefusedError)(nil); errors.As(err, &refused) {
		return []finding{refusal(refused)}, nil
	}
	if err != nil {
		return nil, err
	}
	return append(compare(e, need, func(file string) bool {
		_, err := fs.Stat(c.Files, strings.TrimPrefix(path.Clean(file), "/"))
		return errors.Is(err, fs.ErrNotExist)
	}), lost(e, texts)...), nil
}

// lost returns the runtimes that files define, and that containerd does not have: 1.x does not know the tables of version 3, and a
// later file may replace a table.
func lost(e Effective, texts []store.ConfigText) (list []finding) {
	for _, text := range texts {
		var file dump
		if toml.Unmarshal(text.Data, &file) != nil {
			continue
		}
		for _, plugin := range file.Plugins {
			for name := range plugin.Containerd.Runtimes {
				if _, ok := e.Runtimes[name]; !ok {
					list = append(list, finding{"runtime " + name, fmt.Sprintf("containerd has no runtime %s, which %s defines: it does not know that table, or a later file replaces it", name, text.Path), true})
				}
			}
		}
	}
	return list
}

func refusal(err *RefusedError) finding {
	return finding{key: "start", message: "containerd does not start with it: " + err.Message}
}

// causes returns which file causes which of the findings, by its path. It is the configuration file, if that has the finding alone;
// each imported file that causes it alone; or else the first one with which the finding appears. What a file causes alone and a
// later one repairs is not in found.
func (c Check) causes(ctx context.Context, b Binary, need Need, texts []store.ConfigText, found []finding) (map[string][]finding, error) {
	causes, left := map[string][]finding{}, found
	if len(found) == 0 {
		return causes, nil
	}
	blame := func(with []store.ConfigText, file string) error {
		is, err := c.findings(ctx, b, need, with)
		if err != nil {
			return err
		}
		for _, f := range is {
			if slices.ContainsFunc(found, f.same) {
				causes[file] = append(causes[file], f)
				left = slices.DeleteFunc(slices.Clone(left), f.same)
			}
		}
		return nil
	}
	if err := blame(texts[:1], texts[0].Path); err != nil {
		return nil, err
	}
	found = left
	for _, text := range texts[1:] {
		if err := blame([]store.ConfigText{texts[0], text}, text.Path); err != nil {
			return nil, err
		}
	}
	for i := 2; i < len(texts) && len(left) > 0; i++ {
		found = left
		if err := blame(texts[:i+1], texts[i].Path); err != nil {
			return nil, err
		}
	}
	return causes, nil
}

func (f finding) same(other finding) bool { return f.key == other.key }

func (c Check) problem(file string, found []finding) Problem {
	p := Problem{File: file, Warning: true, Fix: fmt.Sprintf("mv %[1]s %[1]s.before; in a new file, write only what it has to add: ./install docs configuration", fault.Word(file))}
	if file == c.Config {
		p.Fix = fmt.Sprintf("correct the file, and test it: containerd --config %s config dump", fault.Word(file))
	}
	var messages []string
	for _, f := range found {
		messages = append(messages, f.message)
		p.Warning = p.Warning && f.warning
	}
	p.Message = file + ": " + strings.Join(messages, "; ")
	return p
}

// registries is the directory next to the configuration file with the files of registries.
const registries = "certs.d"

// notRead returns warnings about files next to the configuration file that look like parts of it, and that it does not import.
func (c Check) notRead(texts []store.ConfigText) (list []Problem) {
	dir := path.Dir(c.Config)
	if path.Base(dir) != "containerd" { // the directory has other files, too
		return nil
	}
	for _, pattern := range []string{"*.toml", "*/*.toml"} {
		found, _ := fs.Glob(c.Files, strings.TrimPrefix(path.Join(dir, pattern), "/")) // the pattern is valid
		for _, name := range found {
			file := "/" + name
			if file == c.Config || path.Base(path.Dir(file)) == registries || slices.ContainsFunc(texts, func(t store.ConfigText) bool { return t.Path == file }) {
				continue
			}
			list = append(list, Problem{
				File: file, Warning: true, Message: fmt.Sprintf("%s: containerd does not read this file: %s does not import it", file, c.Config),
				Fix: fmt.Sprintf("if it is needed: mv %s %s; ./install status; systemctl restart containerd; otherwise remove it", fault.Word(file), path.Join(dir, "conf.d")+"/"),
			})
		}
	}
	return list
}
