package imagesfound

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJudged(t *testing.T) {
	text := `kind: ClusterPolicy
spec:
  driver:
    repository: nvcr.io/nvidia
    manager:
      repository: nvcr.io/nvidia/cloud-native
      image: driver-manager
      version: v0.12.0
    env: []
    image: driver
    version: "595.91.07"
  validator:
    image: validator
    repository: nvcr.io/nvidia
    version: sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
  cache:
    image: redis
  proxy:
    image: auto
  args:
  - --solver=quay.io/team/solver:v1
---
kind: Job
metadata:
  annotations:
    helm.sh/hook: test
spec:
  image: quay.io/team/no:v1
---
kind: CustomResourceDefinition
spec:
  image:
    description: such as quay.io/team/no:v1
    default: quay.io/team/yes:v1
`
	want := []string{
		"docker.io/library/redis:latest",
		"nvcr.io/nvidia/cloud-native/driver-manager:v0.12.0",
		"nvcr.io/nvidia/driver:595.91.07",
		"nvcr.io/nvidia/validator@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"quay.io/team/solver:v1",
		"quay.io/team/yes:v1",
	}
	if diff := cmp.Diff(want, judged([]byte(text))); diff != "" {
		t.Error(diff)
	}
}
