package serve

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"airlift/scripts/oracle/upstream/components"
)

// Files returns the files of the download sites for one release and one or more architectures: for
// each host, path => file. It writes missing archives to dist/ in the cache. The components must be
// built.
func Files(cache string, release ...components.Release) (map[string]map[string]File, error) {
	all := map[string]map[string]File{"dl.k8s.io": {}, "github.com": {}}
	var runcSums strings.Builder // one file for all architectures
	for _, r := range release {
		dl, err := kubernetesFiles(cache, r)
		if err != nil {
			return nil, err
		}
		github, runcSum, err := githubFiles(cache, r)
		if err != nil {
			return nil, err
		}
		maps.Copy(all["dl.k8s.io"], dl)
		maps.Copy(all["github.com"], github)
		runcSums.WriteString(runcSum)
	}
	signed, err := clearSign([]byte(runcSums.String()))
	if err != nil {
		return nil, err
	}
	all["github.com"][runcURL+"runc.sha256sum"] = File{Data: signed}
	return all, nil
}

// kubernetesFiles returns the files of dl.k8s.io.
func kubernetesFiles(cache string, r components.Release) (map[string]File, error) {
	dl := map[string]File{
		// Upstream's stable files have no newline at the end.
		"/release/stable-" + r.Minor()[1:] + ".txt": {Data: []byte(r.Kubernetes)},
	}
	for _, name := range []string{"kubelet", "kubectl", "kubeadm"} {
		recipe, err := r.Recipe(name)
		if err != nil {
			return nil, err
		}
		program, err := fileWithSums(filepath.Join(recipe.Dir(cache), name))
		if err != nil {
			return nil, err
		}
		path := "/release/" + r.Kubernetes + "/bin/linux/" + r.Arch() + "/" + name
		dl[path] = program.File
		dl[path+".sha256"] = File{Data: []byte(program.sha256)}
		dl[path+".sha512"] = File{Data: []byte(program.sha512)}
	}
	return dl, nil
}

const runcURL = "/opencontainers/runc/releases/download/" + components.Runc + "/"

// githubFiles returns the files of github.com, and the line of runc's list of checksums.
func githubFiles(cache string, r components.Release) (files map[string]File, runcSum string, err error) {
	containerd, err := archive(cache, r, "containerd", "bin/", "containerd-"+components.Containerd[1:]+"-linux-"+r.Arch()+".tar.gz")
	if err != nil {
		return nil, "", err
	}
	plugins, err := archive(cache, r, "cni-plugins", "./", "cni-plugins-linux-"+r.Arch()+"-"+components.CNIPlugins+".tgz")
	if err != nil {
		return nil, "", err
	}
	recipe, err := r.Recipe("runc")
	if err != nil {
		return nil, "", err
	}
	runc, err := fileWithSums(filepath.Join(recipe.Dir(cache), "runc"))
	if err != nil {
		return nil, "", err
	}
	var (
		containerdURL = "/containerd/containerd/releases/download/" + components.Containerd + "/" + containerd.name
		pluginsURL    = "/containernetworking/plugins/releases/download/" + components.CNIPlugins + "/" + plugins.name
	)
	return map[string]File{
		containerdURL:                containerd.File,
		containerdURL + ".sha256sum": {Data: []byte(containerd.sha256 + "  " + containerd.name + "\n")},
		pluginsURL:                   plugins.File,
		pluginsURL + ".sha256":       {Data: []byte(plugins.sha256 + "  " + plugins.name + "\n")},
		pluginsURL + ".sha512":       {Data: []byte(plugins.sha512 + "  " + plugins.name + "\n")},
		runcURL + "runc." + r.Arch(): runc.File,
	}, runc.sha256 + "  runc." + r.Arch() + "\n", nil
}

// archive creates a component's release archive with upstream's layout: the prefix, then
// every file of the component under it, owned by root.
func archive(cache string, r components.Release, component, prefix, name string) (summed, error) {
	recipe, err := r.Recipe(component)
	if err != nil {
		return summed{}, err
	}
	path := filepath.Join(cache, "dist", recipe.Key(), name)
	if _, err := os.Stat(path); os.IsNotExist(err) {
		err = writeArchive(path, prefix, recipe.Dir(cache))
		if err != nil {
			return summed{}, fmt.Errorf("writing %s: %w", path, err)
		}
	} else if err != nil {
		return summed{}, err
	}
	return fileWithSums(path)
}

func writeArchive(path, prefix, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".writing-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()

	zip := gzip.NewWriter(tmp)
	tw := tar.NewWriter(zip)
	epoch := time.Unix(0, 0)
	header := &tar.Header{Typeflag: tar.TypeDir, Name: prefix, Mode: 0o755, ModTime: epoch, Uname: "root", Gname: "root"}
	if err := tw.WriteHeader(header); err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: prefix + e.Name(), Size: info.Size(),
			Mode: int64(info.Mode().Perm()), ModTime: epoch, Uname: "root", Gname: "root",
		}
		if err := tw.WriteHeader(header); err != nil {
			return err
		}
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		_, err = io.Copy(tw, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	if err := tw.Close(); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
