// Package charts renders Helm charts on the connected side, with Helm's own template engine.
// The hosts get the objects, not the chart: no Helm, no templates and no values are needed
// there.
//
// The result is the output of "helm template", with these differences:
//
//   - The API versions are the versions that a cluster of the target version serves, as in
//     "helm install": also in the form apps/v1/Deployment.
//   - CustomResourceDefinitions in the directory crds are included, and come first.
//   - Hooks that run at an installation become ordinary objects: pre-install hooks precede the
//     chart's objects, post-install hooks follow them, each group in the order in which Helm
//     runs them. A host applies them once and does not wait between them, so a pod that needs
//     the result of a job restarts until the job is complete. Helm would delete some of these
//     objects afterwards; here they stay. Hooks for tests, upgrades, rollbacks and deletions
//     are left out.
//   - lookup finds nothing, because there is no cluster. Each lookup is in the notes.
//   - The functions keys and values sort their results. In Helm their order is random.
//   - A chart that generates random values (passwords, certificates) or uses the current time
//     is refused. It would be another cluster at each build, and each build would overwrite
//     the passwords of a running cluster.
//
// Each chart is rendered in a process of its own, with limits of memory, time and output: see
// processName. Symbolic links must stay in the chart's directory.
//
// Everything else is Helm's: values, schemas, conditions, subcharts, the order of kinds.
package charts
