// Package kubetest starts private Kubernetes clusters for tests: the real etcd, kube-apiserver
// with RBAC, and kube-scheduler, and a [Node]'s own kubelet, which runs the first container of
// each pod as a process of this machine. There are two kinds of clusters.
//
// [Start]'s is small. Containers have no image, volumes, probes or limits; pods share the host's
// network at 127.0.0.1 and get no tokens: processes use the files of [Cluster.Kubeconfig].
// kube-controller-manager does not run. Of its parts, a test does those it needs itself:
//
//   - node lifecycle: [Node.Lose] stops the kubelet, and [Cluster.NotReady] sets what the node
//     controller would, once the node's lease is old: condition Ready=Unknown and the taints
//     node.kubernetes.io/unreachable;
//   - taint eviction and pod collection: [Cluster.Collect] deletes the pods of a lost node;
//   - StatefulSets and Deployments: nothing makes their pods.
//
// [StartFull]'s has kube-controller-manager, and each pod a sandbox: a network namespace with an
// address, and a root directory with its volumes (of config maps, secrets, tokens, directories of
// the host and claims of such), the program of its image at /, and the machine's libraries. Pods
// get the tokens of service accounts and are restarted; startup and readiness probes by HTTP and
// TCP decide whether they are ready. It needs root, and a TestMain that calls [Main]. It lacks:
//
//   - images, init containers and limits; users and other security contexts: all processes are
//     root's, and a volume's modes are not kept;
//   - kube-proxy and DNS: the name of a service, also of one with a cluster IP, has the addresses
//     of its ready pods in /etc/hosts, so that ports of services are those of pods;
//   - network policies, liveness probes, and changes of files in volumes.
package kubetest
