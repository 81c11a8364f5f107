/* sim_nodes: a set of nodes of a graph. See sim_nodes.h. */
#include "tools/simgpu/engine/sim_nodes.h"

#include <stdlib.h>

static bool contains(const struct sim_nodes *set, const struct CUgraphNode_st *node)
{
    size_t i;

    for (i = 0; i < set->count; i++)
        if (set->items[i] == node)
            return true;
    return false;
}

bool sim_nodes_add(struct sim_nodes *set, struct CUgraphNode_st *node)
{
    struct CUgraphNode_st **items;

    if (contains(set, node))
        return true;
    items = realloc(set->items, (set->count + 1) * sizeof(*items));
    if (!items)
        return false;
    items[set->count++] = node;
    set->items = items;
    return true;
}

bool sim_nodes_add_all(struct sim_nodes *set, const struct sim_nodes *other)
{
    size_t i;

    for (i = 0; i < other->count; i++)
        if (!sim_nodes_add(set, other->items[i]))
            return false;
    return true;
}

void sim_nodes_clear(struct sim_nodes *set)
{
    free(set->items);
    *set = (struct sim_nodes){NULL, 0};
}
