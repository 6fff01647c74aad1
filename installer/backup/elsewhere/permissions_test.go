package elsewhere

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"airlift/scripts/fixtures/s3host"
)

// Permissions that docs/backup.md lists: of the bucket, and of the prefix.
var (
	ofBucket   = []string{"s3:ListBucket", "s3:ListBucketMultipartUploads"}
	ofPrefix   = []string{"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"}
	ofVersions = []string{"s3:GetObjectVersion", "s3:DeleteObjectVersion"}
)

// TestDocumentedPermissions: with the permissions of the page, a user of S3 can do everything in its prefix and nothing outside of it. Without
// one of them, it cannot do what the page names for it, and still does the rest.
func TestDocumentedPermissions(t *testing.T) {
	page, err := os.ReadFile("../../../docs/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, action := range slices.Concat(ofBucket, ofPrefix, ofVersions) {
		if !strings.Contains(string(page), "`"+action+"`") {
			t.Errorf("docs/backup.md does not have %s", action)
		}
	}
	for _, versions := range []bool{false, true} {
		h := s3host.Start(t, versions)
		root := bucket(t, h.Endpoint, h.Dir).store(t).backend.(*s3).client
		name := "backups"
		if versions {
			name = "versions"
			if err := errors.Join(root.MakeBucket(t.Context(), name, minio.MakeBucketOptions{}), root.EnableVersioning(t.Context(), name)); err != nil {
				t.Fatal(err)
			}
		}
		user := place{url: "s3://" + name + "/plant", config: h.User(t, "PLANT7"), dir: filepath.Join(h.Dir, name, "plant")}
		all := slices.Concat(ofBucket, ofPrefix)
		want := map[string]string{ // without a permission: what fails
			"":                              "",
			"s3:ListBucket":                 "list",
			"s3:GetObject":                  "send read remove",
			"s3:PutObject":                  "send read remove",
			"s3:DeleteObject":               "remove",
			"s3:AbortMultipartUpload":       "parts",
			"s3:ListBucketMultipartUploads": "parts",
		}
		if versions {
			all = append(all, ofVersions...)
			maps.Copy(want, map[string]string{"s3:GetObjectVersion": "send remove", "s3:DeleteObjectVersion": "remove", "s3:DeleteObject": ""})
		}
		for _, without := range slices.Sorted(maps.Keys(want)) {
			want := want[without]
			allow(t, root, name, slices.DeleteFunc(slices.Clone(all), func(a string) bool { return a == without }))
			got := strings.Join(failures(t, user, root, name, without == ""), " ")
			if without == "s3:ListBucket" && strings.HasPrefix(got, "list ") { // a server may then also refuse to look for a name that does not exist
				got = "list"
			}
			if got != want {
				t.Errorf("versions %t, without %q: %q fails, want %q", versions, without, got, want)
			}
		}
		allow(t, root, name, all)
		other := user
		other.url = "s3://" + name + "/plant-8"
		if got := strings.Join(failures(t, other, root, name, false), " "); !strings.Contains(got, "send read remove") {
			t.Errorf("in the prefix of another user, only %q fails", got)
		}
	}
}

// allow gives the user permissions.
func allow(t *testing.T, root *minio.Client, bucket string, actions []string) {
	t.Helper()
	type statement struct{ Effect, Principal, Action, Resource any }
	var list []statement
	for _, a := range actions {
		resource := "arn:aws:s3:::" + bucket
		if !slices.Contains(ofBucket, a) {
			resource += "/plant/*"
		}
		list = append(list, statement{"Allow", map[string][]string{"AWS": {"PLANT7"}}, a, resource})
	}
	policy, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": list})
	if err == nil {
		err = root.SetBucketPolicy(t.Context(), bucket, string(policy))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// failures returns what a user cannot do, also with a backup that is sent in several parts.
func failures(t *testing.T, p place, root *minio.Client, bucket string, large bool) (list []string) {
	s := p.store(t)
	add := func(what string, err error) {
		if err != nil {
			t.Logf("%s: %v", what, err)
			if !slices.Contains(list, what) {
				list = append(list, what)
			}
		}
	}
	_, err := s.List(t.Context())
	add("list", err)
	sizes := []int{1000}
	if large {
		sizes = append(sizes, 17<<20)
	}
	for _, size := range sizes {
		c, f := newCopy(t, "backup.tar.age", size)
		add("send", s.Deliver(t.Context(), c, f))
		add("read", s.Fetch(t.Context(), c.Name, c.Size, io.Discard))
		add("remove", s.Remove(t.Context(), *c))
		for o := range root.ListObjectsIter(t.Context(), bucket, minio.ListObjectsOptions{Recursive: true, WithVersions: true}) {
			if o.Err != nil || root.RemoveObject(t.Context(), bucket, o.Key, minio.RemoveObjectOptions{VersionID: o.VersionID}) != nil {
				t.Fatal(o.Err)
			}
		}
	}
	core, key := minio.Core{Client: root}, s.backend.(*s3).key("backup.tar.age")
	id, err := core.NewMultipartUpload(t.Context(), bucket, key, minio.PutObjectOptions{})
	if err == nil {
		_, err = core.PutObjectPart(t.Context(), bucket, key, id, 1, strings.NewReader("x"), 1, minio.PutObjectPartOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	c, _ := newCopy(t, "backup.tar.age", 10)
	if err := s.Forget(t.Context(), *c); err != nil { // it is the next run's, or the server's
		t.Errorf("without a permission: %v", err)
	}
	for u := range root.ListIncompleteUploads(t.Context(), bucket, key, true) {
		if u.Err != nil {
			t.Fatal(u.Err)
		}
		add("parts", errors.New("they are left"))
	}
	if err := root.RemoveIncompleteUpload(t.Context(), bucket, key); err != nil {
		t.Fatal(err)
	}
	return list
}
