/* sim_list: an intrusive doubly linked list. The head of an empty list points at itself. */
#ifndef SIMGPU_LIST_H
#define SIMGPU_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct sim_link {
    struct sim_link *prev, *next;
};

#define LIST_ITEM(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline void sim_list_init(struct sim_link *head)
{
    head->prev = head->next = head;
}

static inline bool sim_list_empty(const struct sim_link *head)
{
    return head->next == head;
}

static inline void sim_list_append(struct sim_link *head, struct sim_link *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

static inline void sim_list_remove(struct sim_link *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    item->prev = item->next = item;
}

#endif
