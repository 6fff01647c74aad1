// Package imagesfound measures whether builder/manifests and builder/charts find the images of
// public charts and manifests, and writes docs/images-found.md. The judge is independent of both: the
// text that "helm template" or "kubectl kustomize" prints, searched line by line for the key
// image and for the hosts of public registries.
//
//	go run ./scripts/live images-found --repositories DIR --helm helm --kubectl kubectl
//
// DIR contains a clone of each repository as OWNER/NAME. A bare clone is enough:
// git clone --bare --depth 1 https://github.com/OWNER/NAME DIR/OWNER/NAME.
package imagesfound

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"airlift/builder/charts"
	"airlift/builder/fetch"
	"airlift/builder/manifests"
	"airlift/internal/fault"
	"airlift/scripts/live/results"
)

const (
	kubernetes = "v1.37.1"
	page       = "docs/images-found.md"
)

type options struct{ repositories, helm, kubectl, only string }

// Define adds the flags, and returns what measures the subjects.
func Define(f *flag.FlagSet) func(context.Context) error {
	var o options
	f.StringVar(&o.repositories, "repositories", "", "directory with clones of the repositories, as OWNER/NAME")
	f.StringVar(&o.helm, "helm", "", "the helm command; without it, charts are compared with Airlift's own rendering")
	f.StringVar(&o.kubectl, "kubectl", "", "the kubectl command; without it, kustomizations are compared with Airlift's own rendering")
	f.StringVar(&o.only, "only", "", "only subjects whose names contain this; the page is not written")
	return func(context.Context) error { return run(o) }
}

func run(o options) error {
	if o.repositories == "" {
		return fault.New(fault.Usage, "--repositories is missing").Hint("give the directory of the clones with --repositories")
	}
	log.SetFlags(0)
	chosen := slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return !strings.Contains(s.repository+"/"+s.path, o.only) })
	rows := make([]row, len(chosen))
	var all sync.WaitGroup
	places := make(chan struct{}, 4)
	for i, s := range chosen {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			r, err := measure(o, s)
			if err != nil {
				r.problem = strings.Join(strings.Fields(err.Error()), " ")
				log.Printf("%s %s: %v (hint: %s)", s.repository, s.path, err, fault.Hint(err))
			}
			r.subject = s
			log.Print(r.line())
			rows[i] = r
		})
	}
	all.Wait()
	if o.only != "" {
		return nil
	}
	return results.Replace(page, []byte(document(rows)))
}

// measure renders one subject twice, with Airlift and with the judge's command.
func measure(o options, s subject) (r row, err error) {
	dir, err := os.MkdirTemp("", "imagesfound")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	clone := filepath.Join(o.repositories, s.repository)
	commit, err := exec.Command("git", "-C", clone, "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return r, fmt.Errorf("reading the clone: %w", err)
	}
	r.commit = strings.TrimSpace(string(commit))
	if err := extract(clone, s.path, dir); err != nil {
		return r, err
	}
	at := filepath.Join(dir, s.path)
	var objects []*manifests.Object
	var text []byte
	switch {
	case exists(filepath.Join(at, "Chart.yaml")), strings.HasSuffix(at, ".tgz"):
		if exists(filepath.Join(at, "Chart.yaml")) {
			if r.without, err = vendor(clone, s.path, dir); err != nil {
				return r, err
			}
		}
		rendering, err := render(at, s)
		if err != nil {
			return r, err
		}
		objects = rendering.Objects
		r.version = rendering.Version
		if o.helm != "" {
			text, err = output(o.helm, helmArguments(at, rendering.Name, s)...)
			if err != nil {
				return r, err
			}
		}
	default:
		objects, err = manifests.Read(at)
		if err != nil {
			return r, err
		}
		if info, err := os.Stat(at); err == nil && !info.IsDir() {
			text, err = os.ReadFile(at)
			if err != nil {
				return r, err
			}
		} else if o.kubectl != "" {
			text, err = output(o.kubectl, "kustomize", at)
			if err != nil {
				return r, err
			}
		}
	}
	if text != nil {
		if r.same, err = compare(objects, text); err != nil {
			return r, err
		}
	} else if text, err = manifests.Encode(objects); err != nil {
		return r, err
	}
	return r, r.count(objects, text)
}

func helmArguments(at, name string, s subject) []string {
	arguments := []string{"template", name, at, "--namespace", "default", "--include-crds", "--kube-version", kubernetes, "--skip-tests"}
	for _, v := range s.set {
		arguments = append(arguments, "--set", v)
	}
	return arguments
}

func render(at string, s subject) (*charts.Rendering, error) {
	mirrors, err := fetch.NewMirrors(fetch.Transport(), nil)
	if err != nil {
		return nil, err
	}
	return charts.New(mirrors).Render(context.Background(), charts.Chart{Name: at, Set: s.set, KubernetesVersion: kubernetes})
}

func output(name string, arguments ...string) ([]byte, error) {
	cmd := exec.Command(name, arguments...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(name), err, stderr.String())
	}
	return out, nil
}

func exists(name string) bool { _, err := os.Stat(name); return err == nil }

// extract writes a path of the clone's newest commit to a directory. A kustomization may refer
// to its neighbours, so a directory that is not a chart comes with all that is next to it.
func extract(clone, path, dir string) error {
	if path != "." {
		if _, err := exec.Command("git", "-C", clone, "cat-file", "-e", "HEAD:"+path+"/Chart.yaml").Output(); err != nil {
			path, _, _ = strings.Cut(path, "/")
		}
	}
	archive := exec.Command("git", "-C", clone, "archive", "HEAD", path)
	unpack := exec.Command("tar", "-x", "-C", dir)
	var err error
	if unpack.Stdin, err = archive.StdoutPipe(); err != nil {
		return err
	}
	if err := unpack.Start(); err != nil {
		return err
	}
	if err := archive.Run(); err != nil {
		return fmt.Errorf("extracting %s: %w", path, err)
	}
	return unpack.Wait()
}

// vendor copies the dependencies of a chart from the same repository to its directory charts,
// and removes the others from Chart.yaml: a measurement downloads nothing. It returns what it removed.
func vendor(clone, chart, dir string) (without []string, err error) {
	name := filepath.Join(dir, chart, "Chart.yaml")
	content, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var metadata map[string]any
	if err := yaml.Unmarshal(content, &metadata); err != nil {
		return nil, err
	}
	dependencies, _ := metadata["dependencies"].([]any)
	var kept []any
	for _, d := range dependencies {
		fields, _ := d.(map[string]any)
		sub, _ := fields["name"].(string)
		own := filepath.Join(dir, chart, "charts", sub)
		packed, _ := filepath.Glob(own + "-*.tgz")
		if exists(own) || len(packed) > 0 {
			kept = append(kept, d)
			continue
		}
		neighbour := filepath.Join(filepath.Dir(chart), sub)
		if exec.Command("git", "-C", clone, "cat-file", "-e", "HEAD:"+neighbour+"/Chart.yaml").Run() != nil {
			without = append(without, sub)
			continue
		}
		temporary, err := os.MkdirTemp("", "imagesfound")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(temporary)
		if err := extract(clone, neighbour, temporary); err != nil {
			return nil, err
		}
		more, err := vendor(clone, neighbour, temporary)
		if err != nil {
			return nil, err
		}
		without = append(without, more...)
		if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
			return nil, err
		}
		os.Remove(own) // a link to the neighbour
		if err := os.Rename(filepath.Join(temporary, neighbour), own); err != nil {
			return nil, err
		}
		kept = append(kept, d)
	}
	slices.Sort(without)
	without = slices.Compact(without)
	if len(without) == 0 {
		return nil, nil
	}
	metadata["dependencies"] = kept
	if content, err = yaml.Marshal(metadata); err != nil {
		return nil, err
	}
	os.Remove(filepath.Join(dir, chart, "Chart.lock"))
	return without, os.WriteFile(name, content, 0o644)
}
