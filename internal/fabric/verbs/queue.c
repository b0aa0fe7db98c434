//go:build verbs

#include "queue.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

// Inline writes save the adapter a fetch of the payload. This many bytes are requested
// first. Devices accept fewer, or report that they have room for more.
#define ASK_INLINE 1024

// The number of work requests that are chained, or completions taken, at a time.
#define CHAIN 64

// The number of retries for a peer that does not acknowledge, after 4 us << 14 each; the
// adapter may wait up to four times as long. So a peer is given up after 0.5 to 2 s.
#define ACK_TIMEOUT 14
#define RETRIES 7

uint32_t queue_sends(struct queue *q, uint32_t receives)
{
	struct ibv_device_attr attr;

	if (ibv_query_device(q->id->verbs, &attr) || attr.max_cqe <= (int)receives || attr.max_qp_wr < (int)receives)
		return 0;
	uint32_t left = attr.max_cqe - receives;
	return (uint32_t)attr.max_qp_wr < left ? (uint32_t)attr.max_qp_wr : left;
}

// failure returns the errno of a failed call, never 0: some drivers do not set errno.
static int failure(void)
{
	return errno ? errno : EIO;
}

int queue_create(struct queue *q, uint32_t sends, uint32_t receives)
{
	// iWARP has no immediates.
	if (q->id->verbs->device->transport_type != IBV_TRANSPORT_IB)
		return EPROTONOSUPPORT;
	q->channel = ibv_create_comp_channel(q->id->verbs);
	if (!q->channel)
		return failure();
	// Room for the completions of everything that can be pending: it never overflows.
	q->cq = ibv_create_cq(q->id->verbs, sends + receives, NULL, q->channel, 0);
	if (!q->cq)
		return failure();
	// Devices do not report how much they take inline; they refuse a larger size.
	for (uint32_t size = ASK_INLINE;; size /= 2) {
		struct ibv_qp_init_attr attr = {
			.send_cq = q->cq,
			.recv_cq = q->cq,
			.qp_type = IBV_QPT_RC,
			.cap = {
				.max_send_wr = sends,
				.max_recv_wr = receives,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = size,
			},
		};
		if (rdma_create_qp(q->id, q->pd, &attr) == 0) {
			q->inline_size = attr.cap.max_inline_data;
			return 0;
		}
		if (size == 0)
			return failure();
	}
}

int queue_destroy(struct queue *q)
{
	int err = 0, e;

	if (q->id->qp)
		rdma_destroy_qp(q->id);
	if (q->cq && (e = ibv_destroy_cq(q->cq)))
		err = e;
	if (q->channel && (e = ibv_destroy_comp_channel(q->channel)))
		err = e;
	q->cq = NULL;
	q->channel = NULL;
	return err;
}

static const enum ibv_wr_opcode opcodes[] = {
	[OP_READ] = IBV_WR_RDMA_READ,
	[OP_WRITE] = IBV_WR_RDMA_WRITE,
	[OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[OP_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
};

// post chains n operations, at most CHAIN, under one doorbell.
static int post(struct queue *q, const struct op *ops, int n)
{
	struct ibv_send_wr wrs[CHAIN], *bad;
	struct ibv_sge sges[CHAIN];

	for (int i = 0; i < n; i++) {
		const struct op *op = &ops[i];
		struct ibv_send_wr *wr = &wrs[i];

		sges[i] = (struct ibv_sge){ .addr = op->local, .length = op->length, .lkey = op->lkey };
		memset(wr, 0, sizeof *wr);
		wr->wr_id = op->id;
		wr->next = i + 1 < n ? wr + 1 : NULL;
		wr->sg_list = &sges[i];
		wr->num_sge = op->length > 0;
		wr->opcode = opcodes[op->kind & 0xff];
		wr->send_flags = (op->kind & OP_SIGNALED ? IBV_SEND_SIGNALED : 0) |
				 (op->kind & OP_FENCED ? IBV_SEND_FENCE : 0) |
				 (op->kind & OP_INLINE ? IBV_SEND_INLINE : 0);
		wr->imm_data = htonl(op->imm);
		if (wr->opcode != IBV_WR_SEND_WITH_IMM) {
			wr->wr.rdma.remote_addr = op->remote;
			wr->wr.rdma.rkey = op->rkey;
		}
	}
	return ibv_post_send(q->id->qp, wrs, &bad);
}

int queue_step(struct queue *q, const struct op *ops, int n, struct done *out, int most, int *taken)
{
	struct ibv_wc wcs[CHAIN];

	*taken = 0;
	for (int i = 0; i < n; i += CHAIN) {
		int err = post(q, ops + i, n - i < CHAIN ? n - i : CHAIN);
		if (err)
			return err;
	}
	while (*taken < most) {
		int want = most - *taken < CHAIN ? most - *taken : CHAIN;
		int got = ibv_poll_cq(q->cq, want, wcs);
		if (got < 0)
			return EIO; // some drivers return other numbers than errnos
		for (int i = 0; i < got; i++) {
			int has_imm = wcs[i].status == IBV_WC_SUCCESS && (wcs[i].wc_flags & IBV_WC_WITH_IMM);

			out[(*taken)++] = (struct done){
				.id = wcs[i].wr_id,
				.status = wcs[i].status,
				.vendor = wcs[i].vendor_err,
				.opcode = wcs[i].opcode,
				.length = wcs[i].byte_len,
				.imm = has_imm ? ntohl(wcs[i].imm_data) : 0,
				.has_imm = has_imm,
			};
		}
		if (got < want)
			break;
	}
	return 0;
}

int queue_receive(struct queue *q, uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct ibv_sge sge = {
			.addr = q->receive_base + (uint64_t)(first + i) * RECEIVE_SLOT,
			.length = RECEIVE_SLOT,
			.lkey = q->receive_key,
		};
		struct ibv_recv_wr wr = { .wr_id = first + i, .sg_list = &sge, .num_sge = 1 }, *bad;
		int err = ibv_post_recv(q->id->qp, &wr, &bad);

		if (err)
			return err;
	}
	return 0;
}

// The adapter bounds its pending reads by the depth that the two ends agree on here. It
// waits for a peer without a posted receive: credit bounds the number of pending immediates.
static struct rdma_conn_param parameters(void)
{
	return (struct rdma_conn_param){
		.responder_resources = RDMA_MAX_RESP_RES,
		.initiator_depth = RDMA_MAX_INIT_DEPTH,
		.flow_control = 1,
		.retry_count = RETRIES,
		.rnr_retry_count = 7, // for ever
	};
}

// quick shortens the time after which a peer that is gone is detected. Kernels before 5.3 do
// not have the option: there the adapter reports it after a minute or two, and the control
// connection earlier.
static void quick(struct queue *q)
{
	uint8_t timeout = ACK_TIMEOUT;

	rdma_set_option(q->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
}

int queue_connect(struct queue *q, const void *private_data, uint8_t length)
{
	struct rdma_conn_param param = parameters();

	param.private_data = private_data;
	param.private_data_len = length;
	quick(q);
	return rdma_connect(q->id, &param);
}

int queue_accept(struct queue *q)
{
	struct rdma_conn_param param = parameters();

	quick(q);
	return rdma_accept(q->id, &param);
}

// faults reports whether a device accesses registered memory that has no pages yet.
static int faults(struct ibv_context *device)
{
	const uint32_t needed = IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_WRITE;
	struct ibv_device_attr_ex attr = { 0 };

	return ibv_query_device_ex(device, NULL, &attr) == 0 && (attr.odp_caps.general_caps & IBV_ODP_SUPPORT) &&
	       (attr.odp_caps.per_transport_caps.rc_odp_caps & needed) == needed;
}

struct ibv_mr *domain_register(struct ibv_pd *pd, void *memory, size_t size, int flags)
{
	int access = IBV_ACCESS_LOCAL_WRITE;

	if (flags & REGISTER_READS)
		access |= IBV_ACCESS_REMOTE_READ;
	if (flags & REGISTER_WRITES)
		access |= IBV_ACCESS_REMOTE_WRITE;
	if ((flags & REGISTER_ON_DEMAND) && faults(pd->context))
		access |= IBV_ACCESS_ON_DEMAND;
	return ibv_reg_mr(pd, memory, size, access);
}

int queue_arm(struct queue *q)
{
	return ibv_req_notify_cq(q->cq, 0);
}

int queue_event(struct queue *q)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(q->channel, &cq, &context))
		return errno;
	ibv_ack_cq_events(cq, 1);
	return 0;
}
