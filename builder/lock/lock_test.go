package lock

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var sum, other = strings.Repeat("a", 64), strings.Repeat("b", 64)

func sample() *Lock {
	return &Lock{FormatVersion: 1, Platform: "linux/amd64", KubernetesVersion: "v1.29.15", CNI: "flannel",
		Only: []string{"images"}, Base: other,
		Components: []Component{{"runc", "v1.2", "https://runc", sum, ""}, {"kubelet", "v1.29.15", "https://kubelet", sum, "me (https://issuer)"}},
		Images:     []Image{{"docker.io/b:1", "sha256:" + sum, ""}, {"docker.io/a:1", "sha256:" + sum, ""}},
		Charts:     []Chart{{"https://charts", "web", "1.x", "1.2.3", "https://charts/web.tgz", "sha256:" + sum}},
		Manifests:  []Manifest{{"web", sum}},
		Sources:    []Source{{"motd", sum}, {"motd", sum}}}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bundle.lock")
	if _, err := Read(path); !Missing(err) {
		t.Errorf("%v", err)
	}
	if err := Write(path, sample()); err != nil {
		t.Fatal(err)
	}
	all, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	got := all.Of("linux/amd64")
	want := sample()
	want.Sort()
	if !reflect.DeepEqual(got, want) || got.Components[0].Name != "kubelet" || len(got.Sources) != 1 {
		t.Errorf("%+v", got)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(path, got); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Error("equal content was written again")
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// A file for several platforms has each lock as a file for one of them has it.
func TestSeveralPlatforms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bundle.lock")
	arm, amd := sample(), sample()
	arm.Platform, arm.Images = "linux/arm64", arm.Images[:1]
	if err := Write(path, arm, amd); err != nil {
		t.Fatal(err)
	}
	all, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	arm.Sort()
	amd.Sort()
	if len(all) != 2 || !reflect.DeepEqual(all.Of("linux/arm64"), arm) || !reflect.DeepEqual(all[0], amd) || all.Of("linux/riscv64") != nil {
		t.Errorf("%+v", all)
	}
	one, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := (Platforms{amd, arm}).Encode(); err != nil || string(other) != string(one) {
		t.Errorf("the order of the platforms changes the bytes: %v", err)
	}
	for _, change := range [][2]string{
		{"linux/arm64", "linux/amd64"}, {`"platform":`, `"formatVersion": 1, "platform":`}, {`"formatVersion": 2`, `"formatVersion": 1`},
		{`"platforms": [`, `"platforms": [], "x": [`}, {sum, "a"},
	} {
		if _, err := decode([]byte(strings.Replace(string(one), change[0], change[1], 1))); err == nil {
			t.Errorf("%q instead of %q is accepted", change[1], change[0])
		}
	}
}

func TestDamagedFiles(t *testing.T) {
	content, err := Platforms{sample()}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{`"formatVersion": 1`, `"formatVersion": 2`}, {`"formatVersion": 1`, `"formatVersion": 3`}, {`"cni"`, `"cnj"`}, {sum, "a"}, {"sha256:" + sum, sum},
		{`"base": "`, `"base": "sha256:`}, {`"docker.io/b:1"`, `"docker.io/a:1"`}, {"{", "<<<<<<< HEAD\n{"},
		{`"images": [`, `"images": [], "images": [`}, {`"images": [`, `"Images": [], "images": [`}, {`"docker.io/b:1"`, "\"docker.io/b\xff:1\""},
	} {
		if _, err := decode([]byte(strings.Replace(string(content), change[0], change[1], 1))); err == nil {
			t.Errorf("%q instead of %q is accepted", change[1], change[0])
		}
	}
}

// A merge may repeat a list, or append a second lock.
func TestNothingIsIgnored(t *testing.T) {
	content, err := Platforms{sample()}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		strings.Replace(string(content), `"images": [`, "\"images\": [],\n\"images\": [", 1): "images is written twice, first at line ",
		string(content) + string(content): "after top-level value",
	} {
		if _, err := decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestDifferences(t *testing.T) {
	after := sample()
	after.KubernetesVersion = "v1.30.0"
	after.Only, after.Base = []string{"images", "manifests"}, sum
	after.Components[1] = Component{"kubelet", "v1.30.0", "https://kubelet/30", other, ""}
	after.Components[0].SHA256, after.Components[0].SignedBy = other, "me"
	after.Images[0].Digest, after.Images[0].SignedBy = "sha256:"+other, "me"
	after.Images = after.Images[:1]
	after.Charts[0].Version, after.Charts[0].Digest = "1.3.0", "sha256:"+other
	after.Sources = nil
	var lines []string
	for _, d := range Differences(sample(), after) {
		lines = append(lines, d.String())
	}
	want := []string{"kubernetesVersion: v1.29.15 → v1.30.0", "only: images → images, manifests", "base: " + other + " → " + sum, "component kubelet version: v1.29.15 → v1.30.0", "component runc sha256: " + sum + " → " + other, "component runc signedBy: none → me",
		"image docker.io/a:1: sha256:" + sum + " → none", "image docker.io/b:1: sha256:" + sum + " → sha256:" + other, "image docker.io/b:1 signedBy: none → me",
		"chart https://charts web 1.x version: 1.2.3 → 1.3.0", "source motd sha256: " + sum + " → none"}
	if !reflect.DeepEqual(lines, want) {
		t.Errorf("%s", strings.Join(lines, "\n"))
	}
	if list := Differences(sample(), sample()); list != nil {
		t.Errorf("%v", list)
	}
}

func TestPath(t *testing.T) {
	for path, want := range map[string]string{"bundle.yaml": "bundle.lock", "site/app.yml": "site/app.lock", "./x": "./x.lock"} {
		if got := Path(path); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
}
