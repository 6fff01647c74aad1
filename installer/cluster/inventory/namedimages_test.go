package inventory

import (
	"slices"
	"testing"

	"airlift/scripts/fixtures/testcluster/testclient"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNamedImages(t *testing.T) {
	none, yes := int32(0), true
	pod := func(image string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}
	}
	template := func(image string) corev1.PodTemplateSpec { return corev1.PodTemplateSpec{Spec: pod(image)} }
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "web", Name: name} }
	owned := meta("earlier")
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "d", Controller: &yes}}
	full := pod("pod")
	full.InitContainers = []corev1.Container{{Image: "init", Env: []corev1.EnvVar{{Name: "SIDECAR", Value: "environment"}, {Name: "EMPTY"}}}}
	full.Containers[0].Args = []string{"--reloader=argument", "flag"}
	full.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Image: "ephemeral"}}}
	full.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "volume"}}}}
	replicated := template("replicationcontroller")
	c, writes := testclient.Fake(
		&corev1.Pod{ObjectMeta: meta("pod"), Spec: full},
		&appsv1.Deployment{ObjectMeta: meta("d"), Spec: appsv1.DeploymentSpec{Replicas: &none, Template: template("deployment")}},
		&appsv1.StatefulSet{ObjectMeta: meta("s"), Spec: appsv1.StatefulSetSpec{Template: template("statefulset")}},
		&appsv1.DaemonSet{ObjectMeta: meta("s"), Spec: appsv1.DaemonSetSpec{Template: template("daemonset")}},
		&appsv1.ReplicaSet{ObjectMeta: meta("r"), Spec: appsv1.ReplicaSetSpec{Replicas: &none, Template: template("replicaset")}},
		&appsv1.ReplicaSet{ObjectMeta: owned, Spec: appsv1.ReplicaSetSpec{Replicas: &none, Template: template("earlier revision")}},
		&corev1.ReplicationController{ObjectMeta: meta("r"), Spec: corev1.ReplicationControllerSpec{Template: &replicated}},
		&batchv1.Job{ObjectMeta: meta("j"), Spec: batchv1.JobSpec{Template: template("job")}},
		&batchv1.CronJob{ObjectMeta: meta("c"), Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template("cronjob")}}}},
	)
	got, err := NamedImages(t.Context(), c.API)
	want := []string{"--reloader=argument", "argument", "cronjob", "daemonset", "deployment", "environment", "ephemeral", "flag", "init", "job", "pod",
		"replicaset", "replicationcontroller", "statefulset", "volume"}
	if err != nil || !slices.Equal(got, want) || len(writes()) > 0 {
		t.Errorf("%q, %v", got, err)
	}
}
